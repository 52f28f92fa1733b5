"""Ids beyond the tokenizer's over HTTP, where the server's process has read the tokenizer by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from sglang_lite.runtime.server.ipc.process import load_model_tokenizer
from tests.runtime.server.test_openai_chat import USER, chunks
from tests.runtime.server.test_viewer import events
from tests.support.live_server import LiveServer, live_server
from tests.support.padded_engine import PADDING, ROWS, forced, padded_engine
from tests.support.split_engine import split_engine


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with padded_engine(tmp_path_factory.mktemp("padded")) as engine:
        own = load_model_tokenizer(engine.get_server_info()["model_path"])
        assert own is not engine.tokenizer
        with split_engine(engine, own) as client, live_server(client) as server:
            yield server


def body(*ids: int, **more: Any) -> dict[str, Any]:
    """What makes OpenAI's routes draw nothing but `ids`."""
    params = forced(*ids)
    names = {name: params[name] for name in ("logit_bias", "temperature", "seed", "ignore_eos")}
    return {"model": "m", "max_tokens": 12, **names, **more}


def posted(server: LiveServer, path: str, given: dict[str, Any]) -> Any:
    answer = server.post(path, given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def letters(server: LiveServer) -> list[int]:
    ids = posted(server, "/tokenize", {"text": ["a", "b"]})["tokens"]
    return [one[0] for one in ids]


def test_generate_gives_them_and_no_text(padded: LiveServer) -> None:
    given = {"text": "hello", "sampling_params": forced(PADDING), "return_logprob": True, "top_logprobs_num": 2}
    reply = posted(padded, "/generate", given | {"return_text_in_logprobs": True})
    assert (reply["text"], reply["output_ids"]) == ("", [PADDING] * 12)
    assert [entry[1:] for entry in reply["meta_info"]["output_token_logprobs"]] == [[PADDING, ""]] * 12
    streamed = events(padded.post("/generate", given | {"stream": True}))
    assert streamed[-1]["output_ids"] == [PADDING] * 12


def test_chats_and_completions_show_them_as_empty_texts(padded: LiveServer) -> None:
    chat = posted(padded, "/v1/chat/completions", body(PADDING, messages=USER, logprobs=True, top_logprobs=5))
    (choice,) = chat["choices"]
    assert (choice["message"]["content"], chat["usage"]["completion_tokens"]) == ("", 12)
    assert [(one["token"], one["bytes"]) for one in choice["logprobs"]["content"]] == [("", [])] * 12
    done = posted(padded, "/v1/completions", body(PADDING, prompt="hello", logprobs=5, echo=True))
    (choice,) = done["choices"]
    assert choice["text"] == "hello"
    assert choice["logprobs"]["tokens"][-12:] == [""] * 12
    assert choice["logprobs"]["text_offset"][-12:] == [len("hello")] * 12


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_the_pieces_of_a_stream_make_up_the_whole(padded: LiveServer, path: str) -> None:
    """All tokens are told once, those without text with the text around them."""
    is_chat = "chat" in path
    fields: dict[str, Any] = {"logprobs": True} if is_chat else {"logprobs": 1, "prompt": "hello"}
    fields |= body(PADDING, ROWS - 1, *letters(padded), max_tokens=40)
    whole = posted(padded, path, {"messages": USER, **fields} if is_chat else fields)["choices"][0]
    choices = [chunk["choices"][0] for chunk in chunks(padded, path, **fields)]
    if is_chat:
        text, pieces = whole["message"]["content"], [choice["delta"].get("content") or "" for choice in choices]
        tokens = [one["token"] for one in whole["logprobs"]["content"]]
        told = [one["token"] for c in choices if c.get("logprobs") for one in c["logprobs"]["content"]]
    else:
        text, pieces = whole["text"], [choice["text"] for choice in choices]
        tokens = whole["logprobs"]["tokens"]
        told = [token for c in choices if c["logprobs"] for token in c["logprobs"]["tokens"]]
    assert "".join(pieces) == text
    assert told == tokens
    assert len(tokens) == 40
    assert set(tokens) == {"", "a", "b"}


def test_a_stop_string_and_a_grammar_hold_over_http(padded: LiveServer) -> None:
    a, b = letters(padded)
    free = posted(padded, "/v1/completions", body(PADDING, a, b, prompt="hello", max_tokens=40))
    stopped = posted(padded, "/v1/completions", body(PADDING, a, b, prompt="hello", max_tokens=40, stop=["ba"]))
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["choices"][0]["text"] == free["choices"][0]["text"].partition("ba")[0]
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["aba"]}}}
    held = posted(padded, "/v1/chat/completions", body(PADDING, messages=USER, response_format=schema, max_tokens=40))
    assert held["choices"][0]["message"]["content"] == '"aba"'


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
def test_decoding_them_gives_nothing(padded: LiveServer, path: str) -> None:
    a, b = letters(padded)
    for skips in (True, False):
        given = {"tokens": [[a, PADDING, b], [ROWS - 1]], "skip_special_tokens": skips}
        assert posted(padded, path, given)["text"] == ["ab", ""]


def test_given_they_are_computed_as_any_other(padded: LiveServer) -> None:
    (a, b), greedy = letters(padded), {"max_new_tokens": 4, "temperature": 0.0}
    reply = posted(padded, "/generate", {"input_ids": [a, PADDING, b], "sampling_params": greedy})
    done = posted(padded, "/v1/completions", {"model": "m", "prompt": [a, PADDING, b], "max_tokens": 4, "temperature": 0, "echo": True})  # fmt: skip
    assert done["choices"][0]["text"] == "ab" + reply["text"]
    given = {"query": [a], "items": [[PADDING], [b]], "label_token_ids": [PADDING, a]}
    scores = posted(padded, "/v1/score", given)["scores"]
    assert all(0 < score < 1 and math.isfinite(score) for row in scores for score in row)
    assert padded.http.get("/model_info").json()["vocab_size"] == ROWS


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/generate", {"input_ids": [ROWS]}),
        ("/generate", {"text": "a", "sampling_params": {"logit_bias": {str(ROWS): 1}}}),
        ("/v1/completions", {"model": "m", "prompt": [ROWS]}),
        ("/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [ROWS]}),
        ("/detokenize", {"tokens": [ROWS]}),
    ],
)
def test_ids_that_the_embedding_lacks_are_refused(padded: LiveServer, path: str, given: dict[str, Any]) -> None:
    answer = padded.post(path, given)
    assert answer.status_code == 400
    assert str(ROWS) in answer.json()["error"]["message"]


def test_the_playground_shows_them_without_text(padded: LiveServer) -> None:
    got = events(padded.post("/viewer/run", {"text": "hello", "sampling_params": forced(PADDING)}))
    assert [token["text"] for data in got for token in data.get("tokens", ())] == [""] * 12


def test_a_program_goes_on_behind_them(padded: LiveServer) -> None:
    params = forced(PADDING)
    ops = [
        {"op": "text", "id": 0, "branch": 0, "text": "hello"},
        {"op": "gen", "id": 1, "branch": 0, "name": "a", "params": params},
        {"op": "text", "id": 2, "branch": 0, "text": "ab", "ids": [PADDING, *letters(padded)]},
        {"op": "gen", "id": 3, "branch": 0, "name": "b", "params": params},
    ]
    got = events(padded.post("/v1/programs", {"version": 1, "ops": ops, "close": True, "stream": True}))
    done = {data["op"]: data for data in got}
    assert {data["event"] for data in done.values()} == {"done"}, got
    assert [(done[op]["value"], done[op]["ids"]) for op in (1, 3)] == [("", [PADDING] * 12)] * 2
