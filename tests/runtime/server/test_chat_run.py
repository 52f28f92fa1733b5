"""Tools, schemas, thinking and cached prefixes in chats, through the official client, over real grammars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.chat_formats.templates import OPENER, THINKER
from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import TalkingRunner, talking_engine

USER = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": NOTHING}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ROME = call("get_weather", '{"city":"Rome","days":3}')
NOW = call("get_time", "{}")


@pytest.fixture(scope="module")
def roomy() -> Iterator[tuple[LiveServer, TalkingRunner]]:
    """Prompts with tools are long where each byte is a token."""
    with (
        talking_engine(context=4096, num_pages=1024) as (engine, runner),
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


class Got:
    """An answer, whole or put together from a stream as clients do."""

    def __init__(self, client: openai.OpenAI, *, stream: bool, **fields: Any) -> None:
        asked: dict[str, Any] = {"model": "m", "messages": USER, "max_tokens": 300, **fields}
        self.calls: dict[int, list[str]] = {}
        self.text, self.thinking, self.reason, self.notes = "", "", None, None
        if not stream:
            choice = client.chat.completions.create(**asked).choices[0]
            message = choice.message
            self.content = message.content
            self.text, self.reason = message.content or "", choice.finish_reason
            self.thinking = getattr(message, "reasoning_content", "")
            self.notes = getattr(choice, "grammar_notes", None)
            for i, one in enumerate(message.tool_calls or []):
                assert one.type == "function"
                self.calls[i] = [one.id, one.function.name, one.function.arguments]
            return
        for chunk in client.chat.completions.create(**asked, stream=True):
            choice = chunk.choices[0]
            self.text += choice.delta.content or ""
            self.thinking += getattr(choice.delta, "reasoning_content", None) or ""
            self.reason = choice.finish_reason or self.reason
            self.notes = getattr(choice, "grammar_notes", self.notes)
            for one in choice.delta.tool_calls or []:
                if one.index not in self.calls:
                    assert one.type == "function"
                    assert one.function.arguments == ""
                    self.calls[one.index] = [one.id, one.function.name, ""]
                else:
                    assert (one.id, one.function.name) == (None, None)
                    self.calls[one.index][2] += one.function.arguments

    @property
    def named(self) -> list[tuple[str, Any]]:
        assert len({entry[0] for entry in self.calls.values()}) == len(self.calls), "each call has its own id"
        assert list(self.calls) == list(range(len(self.calls)))
        return [(name, json.loads(arguments)) for _, name, arguments in self.calls.values()]


both = pytest.mark.parametrize("stream", [False, True])


@both
@pytest.mark.parametrize("choice", ["auto", "required", NAMED])
def test_a_call_is_apart_from_the_text(client: openai.OpenAI, runner: TalkingRunner, choice: Any, stream: bool) -> None:
    runner.replies["Hi"] = ROME
    got = Got(client, stream=stream, tools=[WEATHER, TIME], tool_choice=choice)
    assert got.named == [("get_weather", {"city": "Rome", "days": 3})]
    assert (got.reason, got.text) == ("tool_calls", "")
    assert stream or got.content is None


@both
def test_calls_in_one_answer_have_their_own_places(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = f"I will look.\n{ROME}\n{NOW}"
    got = Got(client, stream=stream, tools=[WEATHER, TIME])
    assert got.named == [("get_weather", {"city": "Rome", "days": 3}), ("get_time", {})]
    assert (got.reason, got.text) == ("tool_calls", "I will look.")
    runner.replies["Hi"] = f"{ROME}\n{NOW}"
    assert len(Got(client, stream=stream, tools=[WEATHER, TIME], tool_choice="required").named) == 2


@both
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_one_call_where_one_is_asked_for(
    client: openai.OpenAI, runner: TalkingRunner, choice: str, stream: bool
) -> None:
    runner.replies["Hi"] = f"{ROME}\n{NOW}"
    got = Got(client, stream=stream, tools=[WEATHER, TIME], tool_choice=choice, parallel_tool_calls=False)
    assert [name for name, _ in got.named] == ["get_weather"]
    assert got.reason == "tool_calls"


@both
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_model_that_would_not_call_is_held_to_it(
    client: openai.OpenAI, runner: TalkingRunner, choice: Any, stream: bool
) -> None:
    """Whatever it wants to say: the structure and the schema of the tool come out."""
    runner.replies["Hi"] = "I do not want to call anything, thank you." + "}" * 60
    got = Got(client, stream=stream, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    ((name, arguments),) = got.named
    assert name == "get_weather"
    assert arguments["city"] in ("Rome", "Oslo")


@both
def test_arguments_are_held_to_the_schema_in_free_choice_too(
    client: openai.OpenAI, runner: TalkingRunner, stream: bool
) -> None:
    runner.replies["Hi"] = "Well: " + call("get_weather", '{"city":"Paris"}')
    got = Got(client, stream=stream, tools=[WEATHER])
    ((_, arguments),) = got.named
    assert arguments["city"] in ("Rome", "Oslo")
    assert got.text == "Well:"


@both
def test_choice_none_leaves_calls_in_the_text(
    client: openai.OpenAI, server: LiveServer, runner: TalkingRunner, stream: bool
) -> None:
    runner.replies["Hi"] = f"x {ROME} y"
    for fields in ({"tools": [WEATHER], "tool_choice": "none"}, {}):
        got = Got(client, stream=stream, **fields)
        assert (got.text, got.calls, got.reason) == (f"x {ROME} y", {}, "stop")
        assert b"# Tools" not in runner.prompts[-1]


@both
def test_a_call_that_the_length_cuts(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = ROME
    got = Got(client, stream=stream, tools=[WEATHER], tool_choice="required", max_tokens=60)
    assert got.reason == "length"
    ((_, name, arguments),) = got.calls.values()
    assert name == "get_weather"
    assert '{"city":"Rome","days":3}'.startswith(arguments)


@both
def test_some_of_the_tools_may_be_allowed(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = call("get_weather", '{"city":"Rome"}')
    tools = {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    got = Got(
        client, stream=stream, tools=[WEATHER, TIME], tool_choice={"type": "allowed_tools", "allowed_tools": tools}
    )
    assert {name for name, _ in got.named} == {"get_time"}
    assert b"get_weather" in runner.prompts[-1], "the prompt shows them all"


def test_tools_calls_and_results_are_in_the_prompt(client: openai.OpenAI, runner: TalkingRunner) -> None:
    first = client.chat.completions.create(model="m", messages=USER, tools=[WEATHER]).choices[0]  # type: ignore[call-overload]
    runner.replies["Hi"] = ROME
    first = client.chat.completions.create(model="m", messages=USER, tools=[WEATHER]).choices[0]  # type: ignore[call-overload]
    messages = [
        *USER,
        first.message.model_dump(),
        {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "rain"},
    ]
    runner.replies["rain"] = "It rains."
    done = client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])  # type: ignore[call-overload]
    assert done.choices[0].message.content == "It rains."
    prompt = runner.prompts[-1].decode()
    assert prompt.startswith("system\n# Tools")
    assert '"name": "get_weather"' in prompt
    assert '{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}' in prompt
    assert "<tool_response>\nrain\n</tool_response>" in prompt


def json_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}


CITY = {
    "type": "object",
    "properties": {"zeta": {"enum": ["a", "b"]}, "alpha": {"type": "boolean"}},
    "required": ["zeta", "alpha"],
    "additionalProperties": False,
}


@both
def test_a_schema_holds_the_answer(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = "Sure! Here it is."
    got = Got(client, stream=stream, response_format=json_format(CITY, strict=True))
    value = json.loads(got.text)
    assert list(value) == ["zeta", "alpha"], "in the schema's order"
    assert value["zeta"] in ("a", "b")
    assert (got.reason, got.notes) == ("stop", None)


@both
def test_what_a_lenient_schema_does_not_enforce_is_named(
    client: openai.OpenAI, runner: TalkingRunner, stream: bool
) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True}
    runner.replies["Hi"] = "[1]"
    got = Got(client, stream=stream, response_format=json_format(schema))
    assert json.loads(got.text) == [1]
    if got.notes is None:
        pytest.fail("a keyword that was not enforced has no note")
    assert any("uniqueItems" in note for note in got.notes)


@both
def test_any_object(client: openai.OpenAI, runner: TalkingRunner, stream: bool) -> None:
    runner.replies["Hi"] = '{"x":[1,null]}'
    got = Got(client, stream=stream, response_format={"type": "json_object"})
    assert json.loads(got.text) == {"x": [1, None]}


@both
@pytest.mark.parametrize(("reply", "is_call"), [(ROME, True), ('{"zeta":"a","alpha":true}', False)])
def test_a_call_or_an_answer_by_schema(
    client: openai.OpenAI, runner: TalkingRunner, reply: str, is_call: bool, stream: bool
) -> None:
    runner.replies["Hi"] = reply
    got = Got(client, stream=stream, tools=[WEATHER], response_format=json_format(CITY))
    assert bool(got.calls) is is_call
    assert is_call or json.loads(got.text) == {"zeta": "a", "alpha": True}


def prompt_with(mode: str, content: str) -> str:
    with (
        talking_engine(context=4096, num_pages=1024) as (engine, runner),
        split_engine(engine) as split,
        live_server(split, schema_in_prompt=mode) as server,
    ):
        messages = [{"role": "user", "content": content}]
        body = {"messages": messages, "response_format": json_format(CITY), "max_tokens": 20}
        assert server.post("/v1/chat/completions", body).status_code == 200
        return runner.prompts[-1].decode()


@pytest.mark.parametrize(
    ("mode", "content", "is_shown"),
    [
        ("auto", "Where?", True),
        ("auto", 'Give "zeta" and "alpha".', False),
        ("never", "Where?", False),
        ("always", 'Give "zeta" and "alpha".', True),
    ],
)
def test_the_schema_goes_into_the_prompt(mode: str, content: str, is_shown: bool) -> None:
    assert (json.dumps(CITY) in prompt_with(mode, content)) is is_shown


NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def test_a_template_without_system_messages_shows_the_schema_all_the_same() -> None:
    with (
        talking_engine(context=4096, num_pages=1024, template=NO_SYSTEM) as (engine, runner),
        live_server(engine) as server,
    ):
        body = {"messages": USER, "response_format": {"type": "json_object"}, "max_tokens": 2}
        assert server.post("/v1/chat/completions", body).status_code == 200
        assert runner.prompts[-1] == b"user\nAnswer with a JSON object and nothing else.\n\nHi\nassistant"


@pytest.fixture(scope="module")
def thinker() -> Iterator[tuple[LiveServer, TalkingRunner]]:
    with (
        talking_engine(context=4096, num_pages=1024, template=THINKER) as (engine, runner),
        live_server(engine) as server,
    ):
        yield server, runner


def of(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@both
def test_thinking_is_apart(thinker: tuple[LiveServer, TalkingRunner], stream: bool) -> None:
    server, runner = thinker
    runner.replies["Hi"] = "<think>\nHm, let me see.\n</think>\n\nFine."
    with of(server) as client:
        got = Got(client, stream=stream)
        assert (got.thinking, got.text, got.reason) == ("Hm, let me see.", "Fine.", "stop")
        whole = Got(client, stream=stream, extra_body={"separate_reasoning": False})
        assert (whole.thinking, whole.text) == ("", runner.replies["Hi"])


@both
def test_a_constraint_begins_behind_the_thinking(thinker: tuple[LiveServer, TalkingRunner], stream: bool) -> None:
    server, runner = thinker
    runner.replies["Hi"] = '<think>\nNo JSON {here}.\n</think>{"zeta":"b","alpha":false}'
    with of(server) as client:
        got = Got(client, stream=stream, response_format=json_format(CITY))
        assert got.thinking == "No JSON {here}."
        assert json.loads(got.text) == {"zeta": "b", "alpha": False}
        runner.replies["Hi"] = f"<think>\nI call {ROME}\n</think>{ROME}"
        got = Got(client, stream=stream, tools=[WEATHER], tool_choice="required")
        assert (got.thinking, len(got.named), got.reason) == (f"I call {ROME}", 1, "tool_calls")


@both
def test_an_answer_without_marks_is_held_from_its_begin(
    thinker: tuple[LiveServer, TalkingRunner], stream: bool
) -> None:
    """The model of this template may think, and does not: it must not run free up to the limit."""
    server, runner = thinker
    runner.replies["Hi"] = '{"zeta":"b","alpha":false}'
    with of(server) as client:
        got = Got(client, stream=stream, response_format=json_format(CITY))
        assert (got.thinking, json.loads(got.text), got.reason) == ("", {"zeta": "b", "alpha": False}, "stop")
        got = Got(client, stream=stream, extra_body={"thinking_budget": 3})
        assert (got.thinking, got.text, got.reason) == ("", runner.replies["Hi"], "stop")


@both
@pytest.mark.parametrize(
    "fields", [{"reasoning_effort": "none"}, {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}]
)
def test_thinking_can_be_turned_off(
    thinker: tuple[LiveServer, TalkingRunner], fields: dict[str, Any], stream: bool
) -> None:
    server, runner = thinker
    runner.replies["Hi"] = "Fine."
    with of(server) as client:
        got = Got(client, stream=stream, **fields)
        assert (got.thinking, got.text) == ("", "Fine.")
        assert runner.prompts[-1].endswith(b"assistant\n<think>\n\n</think>\n\n")
        got = Got(client, stream=stream, response_format={"type": "json_object"}, **fields)
        assert got.text.startswith("{")


def test_tokens_of_thinking_are_counted_and_bounded(thinker: tuple[LiveServer, TalkingRunner]) -> None:
    server, runner = thinker
    runner.replies["Hi"] = "<think>" + "x" * 50 + "</think>Fine."
    with of(server) as client:
        done = client.chat.completions.create(model="m", messages=USER)  # type: ignore[arg-type]
        assert done.usage is not None
        assert done.usage.completion_tokens_details is not None
        assert done.usage.completion_tokens_details.reasoning_tokens == len("<think>" + "x" * 50 + "</think>")
        short = Got(client, stream=False, extra_body={"thinking_budget": 5})
        assert short.thinking == "x" * 5


def test_a_prompt_may_open_the_thinking() -> None:
    with (
        talking_engine(context=4096, num_pages=1024, template=OPENER) as (engine, runner),
        live_server(engine) as server,
        of(server) as client,
    ):
        runner.replies["Hi"] = "Hm.\n</think>\n\nFine."
        for stream in (False, True):
            got = Got(client, stream=stream)
            assert (got.thinking, got.text) == ("Hm.", "Fine.")


def test_a_salt_keeps_prefixes_apart(client: openai.OpenAI) -> None:
    def cached(salt: str | None) -> int:
        messages = [{"role": "user", "content": "A question of some length, to fill pages of the cache."}]
        done = client.chat.completions.create(  # type: ignore[call-overload]
            model="m", messages=messages, max_tokens=1, extra_body={"cache_salt": salt}
        )
        return done.usage.prompt_tokens_details.cached_tokens

    assert cached("mine") < 16
    assert cached("mine") >= 48
    assert cached("other") < 16
    assert cached("other") >= 48
