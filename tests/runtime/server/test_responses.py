"""Responses through the official client, over real grammars."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.chat_formats.templates import THINKER
from tests.runtime.server.test_chat_run import CITY, NOW, ROME
from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import TalkingRunner, talking_engine

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TIME = {
    "type": "function",
    "name": "get_time",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}


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
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def whole(client: openai.OpenAI, *, stream: bool, **fields: Any) -> Any:
    """The response; of a stream the last event's, after all events were checked against it."""
    asked: dict[str, Any] = {"model": "m", "input": "Hi", "max_output_tokens": 300, **fields}
    if not stream:
        return client.responses.create(**asked)
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    built: dict[int, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            built[event.output_index] = built.get(event.output_index, "") + event.delta
    for index, item in enumerate(last.response.output):
        text = item.arguments if item.type == "function_call" else item.content[0].text
        assert built.get(index, "") == text
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.model_dump() for item in done] == [item.model_dump() for item in last.response.output]
    return last.response


both = pytest.mark.parametrize("stream", [False, True])


@both
def test_a_text(client: openai.OpenAI, stream: bool) -> None:
    got = whole(client, stream=stream, instructions="Be short.", store=True, metadata={"a": "b"})
    assert got.output_text == "Hello there."
    assert (got.status, got.store, got.object, got.error) == ("completed", False, "response", None)
    assert got.metadata == {"a": "b"}
    assert got.usage.output_tokens == 13
    assert got.usage.total_tokens == got.usage.input_tokens + 13
    assert got.output[0].status == "completed"


@both
def test_what_the_length_cuts_is_incomplete(client: openai.OpenAI, stream: bool) -> None:
    got = whole(client, stream=stream, max_output_tokens=3)
    assert (got.output_text, got.status, got.output[0].status) == ("Hel", "incomplete", "incomplete")
    assert got.incomplete_details.reason == "max_output_tokens"


@both
def test_calls_are_items_of_their_own(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = f"I look.\n{ROME}\n{NOW}"
    got = whole(client, stream=stream, tools=[WEATHER, TIME])
    assert [item.type for item in got.output] == ["message", "function_call", "function_call"]
    assert (got.output_text, got.status) == ("I look.", "completed")
    assert [item.name for item in got.output[1:]] == ["get_weather", "get_time"]
    assert json.loads(got.output[1].arguments) == {"city": "Rome", "days": 3}
    assert got.output[1].call_id != got.output[2].call_id


@both
def test_a_tool_that_is_named_is_called(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = f"<think></think>{NOW}"
    choice = {"type": "function", "name": "get_time"}
    (item,) = whole(client, stream=stream, tools=[WEATHER, TIME], tool_choice=choice).output
    assert (item.type, item.name, item.arguments, item.status) == ("function_call", "get_time", "{}", "completed")


def test_a_dialogue_goes_on_from_its_items(client: openai.OpenAI, runner: TalkingRunner) -> None:
    """What came out goes in again as it is, with the results of the calls."""
    runner.replies["Hi"] = f"<think>Hm.</think>I look.\n{ROME}"
    first = client.responses.create(model="m", input="Hi", tools=[WEATHER])  # type: ignore[list-item]
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        *[item.model_dump() for item in first.output],
        {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "rain"},  # type: ignore[union-attr]
    ]
    runner.replies["rain"] = "It rains."
    again = client.responses.create(model="m", input=items, tools=[WEATHER])  # type: ignore[list-item]
    assert again.output_text == "It rains."
    prompt = runner.prompts[-1].decode()
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>' in prompt
    assert "I look." in prompt
    assert "<tool_response>\nrain\n</tool_response>" in prompt


@both
def test_thinking_is_an_item(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = "<think>\nHm.\n</think>\n\nFine."
    got = whole(client, stream=stream)
    assert [item.type for item in got.output] == ["reasoning", "message"]
    assert (got.output[0].content[0].text, got.output_text) == ("Hm.", "Fine.")
    assert got.usage.output_tokens_details.reasoning_tokens == len("<think>\nHm.\n</think>")
    runner.replies["Hi"] = "Fine."
    assert [item.type for item in whole(client, stream=stream, reasoning={"effort": "none"}).output] == ["message"]


@both
def test_a_schema_holds_the_text(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = "<think>Hm.</think>Sure!"
    form = {"type": "json_schema", "name": "n", "schema": CITY, "strict": True}
    got = whole(client, stream=stream, text={"format": form})
    assert list(json.loads(got.output_text)) == ["zeta", "alpha"]


@both
def test_log_probabilities(client: openai.OpenAI, stream: bool) -> None:
    got = whole(client, stream=stream, top_logprobs=2, include=["message.output_text.logprobs"])
    entries = got.output[0].content[0].logprobs
    assert "".join(entry.token for entry in entries) == "Hello there."
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_the_asynchronous_client(server: LiveServer) -> None:
    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.responses.create(model="m", input="Hi", stream=True)
            return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    assert asyncio.run(run()) == "Hello there."


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id is not supported"),
        ({"conversation": "c"}, "conversation is not supported"),
        ({"background": True}, "background is not supported"),
        ({"prompt": {"id": "p"}}, "prompt is not supported"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"input": []}, "input is an empty list"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "foo", "content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id"),
        ({"max_output_tokens": 0}, "max_output_tokens=0"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"tools": [{"name": "f"}]}, "tools.0"),
        ({"tool_choice": "required"}, "without tools"),
        ({"text": {"format": {"type": "odd"}}}, "response_format"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"n": 2}, "n"),
    ],
)
@both
def test_what_cannot_be_meant_is_refused_by_name(
    server: LiveServer, fields: dict[str, Any], words: str, stream: bool
) -> None:
    response = server.post("/v1/responses", {"model": "m", "input": "x", "stream": stream, **fields})
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]


def test_nothing_is_stored(server: LiveServer) -> None:
    made = server.post("/v1/responses", {"input": "x"}).json()
    assert server.http.get(f"/v1/responses/{made['id']}").status_code == 404
