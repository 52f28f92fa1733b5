"""Public reports about servers, as clients see them; the table of all of them is `server_reports.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.public_reports.server_reports import SERVER
from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import talking_engine

TEXT = "ok \U0001f469\u200d\U0001f4bb \u6b6a \u0e2d\u0e35\u0e01 é!"
NUMBERS = (17, 19, 21, 41, 43, 45, 73, 75, 77, 79, 81, 83, 85, 94, 96)


def test_every_report_is_in_the_table() -> None:
    assert [int(name.split()[0][1:]) for name in SERVER] == list(NUMBERS)


@pytest.fixture(scope="module")
def real(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine) as server:
        yield server


@pytest.fixture(scope="module")
def talking() -> Iterator[LiveServer]:
    with talking_engine() as (engine, _), live_server(engine) as server:
        yield server


def body_of(path: str, params: dict[str, Any]) -> dict[str, Any]:
    if path == "/generate":
        renamed = {"max_new_tokens" if name == "max_tokens" else name: value for name, value in params.items()}
        return {"text": "Say:", "sampling_params": renamed}
    if path == "/v1/completions":
        return {"prompt": "Say:", **params}
    return {"messages": [{"role": "user", "content": "Say:"}], **params}


def text_of(path: str, reply: dict[str, Any]) -> str:
    if path == "/generate":
        return reply["text"]
    choice = reply["choices"][0]
    return choice["text"] if path == "/v1/completions" else choice["message"]["content"]


def streamed(server: LiveServer, path: str, body: dict[str, Any]) -> list[str]:
    """The pieces of a stream; asserts its form: `data:` with one line of JSON, a blank line, `[DONE]` last."""
    with server.http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.headers["content-type"].partition(";")[0] == "text/event-stream"
        events = response.read().decode("utf-8", "strict").split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    datas = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    if path == "/generate":
        whole = ["", *(data["text"] for data in datas)]
        return [b.removeprefix(a) for a, b in pairwise(whole)]
    deltas = [data["choices"][0] for data in datas if data["choices"]]
    if path == "/v1/completions":
        return [one["text"] for one in deltas]
    return [one["delta"].get("content") or "" for one in deltas]


ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")
routes = pytest.mark.parametrize("path", ROUTES)


@pytest.mark.model
@routes
def test_characters_of_several_tokens_come_whole_on_every_route(real: LiveServer, path: str) -> None:
    """C17: the model is held to the text, so that only the way out is tested."""
    body = body_of(path, {"regex": re.escape(TEXT), "max_tokens": 80, "temperature": 0})
    assert text_of(path, real.post(path, body).json()) == TEXT
    pieces = streamed(real, path, body)
    assert "".join(pieces) == TEXT
    assert len(pieces) > 3
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.model
@routes
def test_an_answer_cut_inside_a_character_ends_the_same_way_in_a_stream(real: LiveServer, path: str) -> None:
    """C17: what is left of a character comes as one U+FFFD at the very end, or not at all, in both forms."""
    cut = 0
    for limit in range(2, 8):
        body = body_of(path, {"regex": re.escape(TEXT), "max_tokens": limit, "temperature": 0})
        whole = text_of(path, real.post(path, body).json())
        assert "".join(streamed(real, path, body)) == whole
        assert TEXT.startswith(whole.rstrip("\ufffd"))
        cut += whole.endswith("\ufffd")
    assert cut, "no limit lay inside a character"


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_usage_of_a_stream_of_completions_comes_where_it_is_asked_for(
    talking: LiveServer, options: dict[str, bool] | None
) -> None:
    """C19: as in chats."""
    body = {"prompt": "Hi", "stream": True, "stream_options": options}
    with talking.http.stream("POST", "/v1/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    chunks = [json.loads(line) for line in lines[:-1]]
    last = [chunks.pop()] if options and options["include_usage"] else []
    assert all(chunk["choices"] and chunk.get("usage") is None for chunk in chunks)
    for chunk in last:
        assert chunk["choices"] == []
        assert chunk["usage"]["completion_tokens"] > 0
        assert chunk["usage"]["total_tokens"] == chunk["usage"]["prompt_tokens"] + chunk["usage"]["completion_tokens"]


def test_ids_and_names_of_answers(talking: LiveServer) -> None:
    """C21: each answer has an id of its own and the name of its kind."""
    seen: set[str] = set()
    for path, kind in (("/v1/completions", "text_completion"), ("/v1/chat/completions", "chat.completion")):
        for _ in range(2):
            reply = talking.post(path, body_of(path, {"max_tokens": 3})).json()
            assert reply["object"] == kind
            assert reply["choices"][0]["finish_reason"] == "length"
            assert reply["usage"]["completion_tokens"] == 3
            seen.add(reply["id"])
    assert len(seen) == 4


def test_a_request_that_outgrows_the_pool_ends_alone() -> None:
    """C81: alone it gets an error or an early end that says why; beside others, those finish; too long a prompt is 400."""
    with talking_engine(context=512, num_pages=8) as (engine, runner), live_server(engine) as server:
        runner.replies |= {"long": "x" * 400, "a": "y" * 40}
        size = engine.get_server_info()["max_total_tokens"]
        for path in ROUTES[:2]:
            key = "text" if path == "/generate" else "prompt"
            alone = server.post(
                path,
                {key: "long", "ignore_eos": True}
                if key == "prompt"
                else {key: "long", "sampling_params": {"max_new_tokens": 400}},
            )
            if alone.status_code == 200:
                assert str(size) in alone.text or "length" in alone.text
            else:
                assert alone.status_code == 503
                assert str(size) in alone.json()["error"]["message"]
            assert server.post(path, {key: "b" * (size + 20)}).status_code == 400
        replies = [server.post("/generate", {"text": "a"}).json()["text"] for _ in range(2)]
        assert replies == ["y" * 40] * 2
        kv = engine.get_server_info()["kv"]
        assert kv["free_pages"] + kv["evictable_pages"] == kv["total_pages"]
        assert server.http.get("/health").status_code == 200


@pytest.mark.parametrize("field", [
    {"stream": "true"}, {"max_tokens": "5"}, {"max_tokens": 1.5}, {"temperature": "hot"}, {"temperature": -1}, {"top_p": 0},
    {"top_p": 2}, {"n": 0}, {"n": -1}, {"seed": "a"}, {"model": 5}, {"unheard_of": True}, {"stop": 5}, {"stop": 1.5},
    {"logit_bias": 5}, {"logit_bias": [1]}, {"logit_bias": "a"},
])  # fmt: skip
@routes
def test_fields_of_the_wrong_type_are_the_clients_fault(talking: LiveServer, path: str, field: dict[str, Any]) -> None:
    """C83: 400 in JSON, in the API's form, and nothing is lost in silence."""
    if path == "/generate":
        name = next(iter(field))
        body = body_of(path, {}) | field if name in ("stream", "model", "unheard_of") else body_of(path, field)
    else:
        body = body_of(path, {}) | field
    response = talking.post(path, body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["message"]
    if path != "/generate":
        assert set(error) == {"message", "type", "param", "code"}


HOSTILE = {
    "internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "file": "{{ cycler.__init__.__globals__.os.popen('touch broken').read() }}",
    "endless": "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
    "huge": "{{ 'x' * 1000000000 }}",
    "changes": "{{ messages.clear() }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_harms_its_own_request_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C96: the chat gets one clean error, other routes are served, nothing is run."""
    monkeypatch.chdir(tmp_path)
    with talking_engine(template=HOSTILE[name]) as (engine, _), live_server(engine) as server:
        reply: httpx.Response = server.post(ROUTES[2], body_of(ROUTES[2], {}))
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["message"]
        assert server.post("/generate", {"text": "Hi"}).json()["text"] == "Hello there."
    assert list(tmp_path.iterdir()) == []
