from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.runtime.server.test_openai_chat import chunks
from tests.support.live_server import LiveServer
from tests.support.talking_engine import TalkingRunner


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def complete(server: LiveServer, **fields: Any) -> Any:
    return server.post("/v1/completions", {"model": "m", "prompt": "Hi", **fields})


def test_sixteen_tokens_are_the_default(client: openai.OpenAI, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = "a long text that does not end so soon"
    done = client.completions.create(model="m", prompt="Hi")
    assert done.choices[0].text == "a long text that"
    assert done.choices[0].finish_reason == "length"
    assert done.object == "text_completion"
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (2, 16)


def test_lists_and_samples_are_ordered_by_prompt(client: openai.OpenAI, runner: TalkingRunner) -> None:
    runner.replies |= {"one": "1", "two": "22"}
    done = client.completions.create(model="m", prompt=["one", "two"], n=2)
    assert [(choice.index, choice.text) for choice in done.choices] == [(0, "1"), (1, "1"), (2, "22"), (3, "22")]
    assert done.usage is not None
    assert done.usage.prompt_tokens == 6


def test_prompts_of_ids(client: openai.OpenAI) -> None:
    assert client.completions.create(model="m", prompt=[72, 105]).choices[0].text == "Hello there."
    done = client.completions.create(model="m", prompt=[[72], [105]], echo=True, max_tokens=2)
    assert [choice.text for choice in done.choices] == ["HHe", "iHe"]


def test_scoring_gives_the_prompt_and_nothing_more(server: LiveServer) -> None:
    done = complete(server, prompt="Yés", echo=True, logprobs=1, max_tokens=0).json()
    choice = done["choices"][0]
    assert choice["text"] == "Yés"
    assert done["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == "Yés"
    assert logprobs["token_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert [len(logprobs[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [4] * 4
    assert logprobs["text_offset"] == [0, 1, 1, 2]


def test_echo_with_log_probabilities_has_an_entry_for_every_token(server: LiveServer) -> None:
    choice = complete(server, prompt="Hi ", echo=True, logprobs=2, max_tokens=2).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["text"] == "Hi He" == "".join(logprobs["tokens"])
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4]
    assert logprobs["top_logprobs"][0] is None
    assert all(len(row) == 2 for row in logprobs["top_logprobs"][1:])
    assert logprobs["top_logprobs"][3]["H"] == logprobs["token_logprobs"][3]


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_joins_to_the_answer(server: LiveServer, echo: bool) -> None:
    fields = {"prompt": "Hi", "echo": echo, "logprobs": 1, "max_tokens": 40}
    whole = complete(server, **fields).json()["choices"][0]
    got = [chunk["choices"][0] for chunk in chunks(server, "/v1/completions", **fields)]
    assert "".join(choice["text"] for choice in got) == whole["text"]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert [entry for choice in got for entry in choice["logprobs"][name]] == whole["logprobs"][name]
    assert got[-1]["finish_reason"] == "stop"


def test_a_stream_of_several_prompts(server: LiveServer, runner: TalkingRunner) -> None:
    runner.replies |= {"one": "1", "two": "22"}
    got = chunks(server, "/v1/completions", prompt=["one", "two"], stream_options={"include_usage": True})
    texts = {0: "", 1: ""}
    for chunk in got[:-1]:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == {0: "1", 1: "22"}
    assert got[-1]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "empty list"),
        ({"prompt": [[]]}, "at least one token"),
        ({"prompt": ""}, "at least one token"),
        ({"prompt": [-1]}, "token id -1"),
        ({"prompt": [10**9]}, "token id 1000000000"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n=0"),
        ({"n": -1}, "n=-1"),
        ({"n": 1000}, "n=1000"),
        ({"seed": "a"}, "seed"),
        ({"model": 5}, "model"),
        ({"stream": "true"}, "stream"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 99}, "logprobs=99"),
        ({"suffix": "x"}, "suffix"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"prompt": ["a"] * 300}, "300 prompts"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(server: LiveServer, fields: dict[str, Any], words: str) -> None:
    response = complete(server, **fields)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]
    assert complete(server).json()["choices"][0]["text"] == "Hello there."


def test_a_huge_max_tokens_ends_at_the_context(server: LiveServer) -> None:
    response = complete(server, max_tokens=10**9, ignore_eos=True)
    assert response.status_code == 200
    assert response.json()["choices"][0]["finish_reason"] == "length"


def test_negative_seeds_are_seeds(server: LiveServer) -> None:
    assert complete(server, seed=-5).status_code == 200
