from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.live_server import LiveServer
from tests.support.split_engine import until_taken
from tests.support.talking_engine import TalkingRunner


def events(text: str) -> list[Any]:
    """The data of all events; asserts the framing: `data: ` and one line of JSON, a blank line, `[DONE]` last."""
    assert text.endswith("data: [DONE]\n\n")
    blocks = text.removesuffix("data: [DONE]\n\n").split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def test_generate_answers_as_sglang_does(server: LiveServer) -> None:
    reply = server.post("/generate", {"text": "Hi", "sampling_params": {"temperature": 0}}).json()
    assert reply["text"] == "Hello there."
    assert reply["output_ids"] == list(b"Hello there.")
    meta = reply["meta_info"]
    assert meta["finish_reason"] == {"type": "stop", "matched": 257}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (2, 13)
    assert meta["id"]


def test_a_list_gives_a_list_in_order(server: LiveServer, runner: TalkingRunner) -> None:
    runner.replies |= {"one": "1", "two": "22"}
    replies = server.post("/generate", {"text": ["one", "two", "three"]}).json()
    assert [reply["text"] for reply in replies] == ["1", "22", "Hello there."]


def test_ids_and_n_and_log_probabilities(server: LiveServer) -> None:
    body = {
        "input_ids": [72, 105],
        "sampling_params": {"n": 2, "max_new_tokens": 2, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 2,
        "return_text_in_logprobs": True,
    }
    replies = server.post("/generate", body).json()
    assert [reply["text"] for reply in replies] == ["He", "He"]
    meta = replies[0]["meta_info"]
    assert meta["finish_reason"] == {"type": "length"}
    assert [entry[1:] for entry in meta["output_token_logprobs"]] == [[72, "H"], [101, "e"]]
    assert meta["input_token_logprobs"][0] == [None, 72, "H"]
    assert len(meta["output_top_logprobs"][0]) == 2


def test_a_stream_is_cumulative(server: LiveServer) -> None:
    with server.http.stream("POST", "/generate", json={"text": "Hi", "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        replies = events(response.read().decode())
    texts = [reply["text"] for reply in replies]
    assert texts[-1] == "Hello there."
    assert all("Hello there.".startswith(text) for text in texts)
    assert texts == sorted(texts, key=len)
    assert replies[-1]["meta_info"]["finish_reason"]["type"] == "stop"
    assert all(reply["meta_info"]["finish_reason"] is None for reply in replies[:-1])


def test_a_stream_of_a_list_says_which_one(server: LiveServer, runner: TalkingRunner) -> None:
    runner.replies |= {"one": "1", "two": "22"}
    with server.http.stream("POST", "/generate", json={"text": ["one", "two"], "stream": True}) as response:
        replies = events(response.read().decode())
    last = {reply["index"]: reply["text"] for reply in replies}
    assert last == {0: "1", 1: "22"}


TEXT = "ok \U0001f469\u200d\U0001f4bb \u6b6a \u0e2d\u0e35\u0e01 é!"


def test_no_piece_of_a_stream_holds_half_a_character(server: LiveServer, runner: TalkingRunner) -> None:
    """Byte tokens cut every character that can be cut."""
    runner.replies["emoji"] = TEXT
    with server.http.stream("POST", "/generate", json={"text": "emoji", "stream": True}) as response:
        replies = events(response.read().decode())
    assert replies[-1]["text"] == TEXT
    assert all("\ufffd" not in reply["text"] for reply in replies)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of prompt and input_ids"),
        ({"text": "a", "input_ids": [1]}, "exactly one"),
        ({"text": ""}, "no tokens"),
        ({"text": ["a", ""]}, "no tokens"),
        ({"text": 5}, "text"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [[]]}, "no tokens"),
        ({"input_ids": [-1]}, "token id -1"),
        ({"input_ids": [10**9]}, "token id 1000000000"),
        ({"input_ids": [1.5]}, "input_ids"),
        ({"text": "a", "sampling_params": {"temperature": "hot"}}, "temperature"),
        ({"text": "a", "sampling_params": {"stop": 1.5}}, "sampling parameters"),
        ({"text": "a", "sampling_params": {"stop": {"x": 1}, "n": 0}}, "n=0"),
        ({"text": "a", "sampling_params": {"logit_bias": 5}}, "sampling parameters"),
        ({"text": "a", "sampling_params": {"logit_bias": {"999999": 1}}}, "999999"),
        ({"text": "a", "sampling_params": {"unheard_of": 1}}, "unheard_of"),
        ({"text": "a", "sampling_params": {"n": 1000}}, "n=1000"),
        ({"text": ["a"] * 1000}, "1000 prompts"),
        ({"text": ["a", "b"], "sampling_params": [{}]}, "1 for 2 prompts"),
        ({"text": "a", "image_data": "x"}, "image_data"),
        ({"text": "a", "unheard_of": 1}, "unheard_of"),
        ({"text": "a", "stream": "true"}, "stream"),
        ({"text": "a", "sampling_params": {"regex": "refuse me"}}, "as asked"),
        ({"text": "a", "sampling_params": {"regex": "refuse me"}, "stream": True}, "as asked"),
        ({"text": "a" * 600}, "600 tokens"),
    ],
)
def test_a_wrong_body_is_refused_in_words(server: LiveServer, body: dict[str, Any], words: str) -> None:
    response = server.post("/generate", body)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]
    assert server.http.get("/health").status_code == 200


def test_abort_ends_a_request_by_its_id(server: LiveServer, runner: TalkingRunner) -> None:
    body = {"text": "Hi", "rid": "mine", "stream": True, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    runner.gate = threading.Semaphore(2)
    try:
        with server.http.stream("POST", "/generate", json=body) as response:
            lines = response.iter_lines()
            first = json.loads(next(lines).removeprefix("data: "))
            assert server.post("/abort_request", {"rid": "mine"}).json() == {"rid": "mine"}
            until_taken(server.app.service.engine)
            runner.gate.release(10)
            rest = [line for line in lines if line.startswith("data: {")]
        last = json.loads(rest[-1].removeprefix("data: "))
    finally:
        gate, runner.gate = runner.gate, None
        gate.release(1000)
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert last["text"].startswith(first["text"])
    assert server.post("/abort_request", {"rid": "nobody"}).status_code == 200
    assert server.post("/abort_request", {"rid": ""}).status_code == 400


def test_information_routes(server: LiveServer) -> None:
    info = server.http.get("/get_model_info").json()
    assert info["model_path"] == "toy/talking.gguf"
    assert info["is_generation"] is True
    assert server.http.get("/get_server_info").json()["status"] == "ready"
    assert server.http.get("/health_generate").status_code == 200
    assert server.http.post("/flush_cache").json()["success"] is True


def test_tokens_there_and_back(server: LiveServer) -> None:
    got = server.post("/tokenize", {"prompt": "<|im_start|>é"}).json()
    assert got == {"tokens": [256, 195, 169], "count": 3, "max_model_len": 512}
    assert server.post("/detokenize", {"tokens": got["tokens"]}).json() == {"text": "é"}
    kept = server.post("/detokenize", {"tokens": [[256, 65], [66]], "skip_special_tokens": False}).json()
    assert kept == {"text": ["<|im_start|>A", "B"]}
    assert server.post("/tokenize", {"text": ["a", "bc"]}).json()["count"] == [1, 2]
    assert server.post("/detokenize", {"tokens": [999]}).status_code == 400
    assert server.post("/tokenize", {}).status_code == 400
