"""Anthropic's messages through its official client, over real grammars."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.chat_formats.templates import THINKER
from tests.runtime.server.test_chat_run import CITY, NOW, ROME
from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import TalkingRunner, talking_engine

WEATHER = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TIME = {"name": "get_time", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}
USER: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def roomy() -> Iterator[tuple[LiveServer, TalkingRunner]]:
    with (
        talking_engine(context=4096, num_pages=1024, template=THINKER) as (engine, runner),
        split_engine(engine) as split,
        live_server(split) as server,
    ):
        yield server, runner


@pytest.fixture
def server(roomy: tuple[LiveServer, TalkingRunner]) -> LiveServer:
    roomy[1].replies.clear()
    roomy[1].prompts.clear()
    return roomy[0]


@pytest.fixture
def runner(roomy: tuple[LiveServer, TalkingRunner], server: LiveServer) -> TalkingRunner:
    return roomy[1]


@pytest.fixture
def client(server: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


def whole(client: anthropic.Anthropic, *, stream: bool, **fields: Any) -> Any:
    """The message; of a stream, as the client puts it together."""
    asked: dict[str, Any] = {"model": "m", "messages": USER, "max_tokens": 300, **fields}
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        kinds = [event.type for event in events]
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
        return events.get_final_message()


both = pytest.mark.parametrize("stream", [False, True])


@both
def test_a_text(client: anthropic.Anthropic, runner: TalkingRunner, stream: bool) -> None:
    got = whole(client, stream=stream, system="Be short.")
    assert [(block.type, block.text) for block in got.content] == [("text", "Hello there.")]
    assert (got.stop_reason, got.stop_sequence, got.role) == ("end_turn", None, "assistant")
    assert got.usage.output_tokens == 13
    assert runner.prompts[-1].startswith(b"system\nBe short.")
    total = got.usage.input_tokens + got.usage.cache_read_input_tokens
    assert client.messages.count_tokens(model="m", messages=USER, system="Be short.").input_tokens == total


@both
@pytest.mark.parametrize(
    ("fields", "text", "reason", "sequence"),
    [({"max_tokens": 3}, "Hel", "max_tokens", None), ({"stop_sequences": [" th"]}, "Hello", "stop_sequence", " th")],
)
def test_reasons_are_true(
    client: anthropic.Anthropic, fields: Any, text: str, reason: str, sequence: str | None, stream: bool
) -> None:
    got = whole(client, stream=stream, **fields)
    assert (got.content[0].text, got.stop_reason, got.stop_sequence) == (text, reason, sequence)


@both
def test_calls_are_blocks(client: anthropic.Anthropic, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = f"I look.\n{ROME}\n{NOW}"
    got = whole(client, stream=stream, tools=[WEATHER, TIME])
    assert [block.type for block in got.content] == ["text", "tool_use", "tool_use"]
    assert [(block.name, block.input) for block in got.content[1:]] == [
        ("get_weather", {"city": "Rome", "days": 3}),
        ("get_time", {}),
    ]
    assert got.stop_reason == "tool_use"
    choice = {"type": "any", "disable_parallel_tool_use": True}
    runner.replies["Hi"] = f"<think></think>{ROME}\n{NOW}"
    assert len(whole(client, stream=stream, tools=[WEATHER, TIME], tool_choice=choice).content) == 1
    runner.replies["Hi"] = f"<think></think>{NOW}"
    named = whole(client, stream=stream, tools=[WEATHER, TIME], tool_choice={"type": "tool", "name": "get_time"})
    assert [block.name for block in named.content] == ["get_time"]


def test_a_dialogue_goes_on_with_results(client: anthropic.Anthropic, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = f"<think>Hm.</think>I look.\n{ROME}"
    first = client.messages.create(model="m", max_tokens=200, messages=USER, tools=[WEATHER])  # type: ignore[list-item]
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    result = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": [{"type": "text", "text": "rain"}]}  # type: ignore[union-attr]
    messages = [
        *USER,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    runner.replies["And now?"] = "It rains."
    again = client.messages.create(model="m", max_tokens=200, messages=messages, tools=[WEATHER])  # type: ignore[arg-type, list-item]
    assert again.content[0].text == "It rains."  # type: ignore[union-attr]
    prompt = runner.prompts[-1].decode()
    assert "<tool_response>\nrain\n</tool_response>\nuser\nAnd now?" in prompt


@both
def test_thinking_is_a_block(client: anthropic.Anthropic, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = "<think>\nHm, hm.\n</think>\n\nFine."
    got = whole(client, stream=stream)
    assert [block.type for block in got.content] == ["thinking", "text"]
    assert (got.content[0].thinking, got.content[1].text) == ("Hm, hm.", "Fine.")
    bounded = whole(client, stream=stream, thinking={"type": "enabled", "budget_tokens": 3})
    assert len(bounded.content[0].thinking) <= 3
    runner.replies["Hi"] = "Fine."
    assert [block.type for block in whole(client, stream=stream, thinking={"type": "disabled"}).content] == ["text"]


@both
def test_the_answer_may_be_begun(client: anthropic.Anthropic, runner: TalkingRunner, stream: bool) -> None:
    got = whole(client, stream=stream, messages=[*USER, {"role": "assistant", "content": "I th"}])
    assert got.content[0].text == "Hello there."
    assert runner.prompts[-1].endswith(b"assistant\nI th")


def test_a_schema_holds_the_text(server: LiveServer, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = "<think>Hm.</think>Sure!"
    form = {"format": {"type": "json_schema", "schema": CITY}}
    body = {"model": "m", "messages": USER, "max_tokens": 200, "output_config": form}
    got = server.post("/v1/messages", body).json()
    assert list(json.loads(got["content"][-1]["text"])) == ["zeta", "alpha"]


def test_the_asynchronous_client_streams(server: LiveServer) -> None:
    async def run() -> str:
        async with (
            anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client,
            client.messages.stream(model="m", max_tokens=50, messages=USER) as stream,
        ):
            return "".join([text async for text in stream.text_stream])

    assert asyncio.run(run()) == "Hello there."


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"role": "foo", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages.0.content.0"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": None}, "max_tokens"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "web_search"),
        ({"tools": [{"name": "f"}]}, "input_schema"),
        ({"tool_choice": {"type": "any"}}, "without tools"),
        ({"tool_choice": {"type": "odd"}}, "tool_choice"),
        ({"thinking": {"type": "odd"}}, "thinking"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "at most 4095 fit"),
    ],
)
@both
def test_errors_have_anthropics_shape(server: LiveServer, fields: Any, words: str, stream: bool) -> None:
    body = {"model": "m", "messages": USER, "max_tokens": 5, "stream": stream, **fields}
    response = server.post("/v1/messages", body)
    assert response.status_code == 400, response.text
    got = response.json()
    assert (got["type"], got["error"]["type"]) == ("error", "invalid_request_error")
    assert words in got["error"]["message"]


def test_the_key_comes_in_anthropics_header() -> None:
    with talking_engine() as (engine, _), live_server(engine, api_keys=("secret",)) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0) as client:
            assert client.messages.create(model="m", max_tokens=5, messages=USER).content[0].text == "Hello"  # type: ignore[union-attr]
        with (
            anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.messages.create(model="m", max_tokens=5, messages=USER)
        other = server.post("/v1/chat/completions", {"messages": USER}, **{"x-api-key": "secret"})
        assert other.status_code == 401
