"""Tools as the API's own: calls become `tool_calls`, results answer the call that the API made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sglang_lite.errors import UnsupportedError
from sglang_lite.lang import ProgramState, assistant, function, gen, user
from sglang_lite.lang.backends.hosted import Anthropic, HostedBackend, OpenAI
from sglang_lite.lang.backends.hosted.tool_turns import name_in, paired
from tests.support.hosted_stub import CallsTools, Stub, hosted_stub


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def clock() -> str:
    """The time."""
    return "noon"


@function
def agent(s: ProgramState, choice: str | None = None) -> str:
    s += user("Weather?")
    s += assistant(gen("call", tools=[weather, clock], tool_choice=choice))
    for call in s["call"].tool_calls:
        s.tool_result(call, weather(**call.arguments) if call.name == "weather" else clock())
    s += assistant(gen("answer", tools=[weather, clock], tool_choice="none"))
    return s["answer"].text


@pytest.fixture
def stub() -> Iterator[Stub]:
    with hosted_stub(CallsTools([("weather", {"city": "Rome"}), ("clock", {})], "Let me see."), "Sunny.") as made:
        yield made


def backend_of(kind: str, stub: Stub) -> HostedBackend:
    if kind == "anthropic":
        return Anthropic("m", base_url=stub.url, api_key="k")
    return OpenAI("m", True, base_url=f"{stub.url}/v1", api_key="k")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_an_agent_calls_tools_and_goes_on(stub: Stub, kind: str, stream: bool) -> None:
    backend = backend_of(kind, stub)
    state = agent.run(backend=backend, stream=stream)
    state.sync()
    assert state.ret_value == "Sunny."
    reply = state["call"]
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("weather", {"city": "Rome"}), ("clock", {})]
    first, second = stub.bodies
    if kind == "openai":
        assert first["tool_choice"] == "auto"
        assert first["tools"][0]["function"]["name"] == "weather"
        assert second["tool_choice"] == "none"
        said, *results = second["messages"][1:]
        assert (said["content"], [call["id"] for call in said["tool_calls"]]) == ("Let me see.", ["c0", "c1"])
        assert [(m["role"], m["tool_call_id"], m["content"]) for m in results] == [
            ("tool", "c0", "sunny in Rome"),
            ("tool", "c1", "noon"),
        ]
    else:
        assert first["tool_choice"] == {"type": "auto"}
        assert first["tools"][0]["input_schema"]["properties"]["city"]["type"] == "string"
        said, *results = second["messages"][1:]
        assert [block["type"] for block in said["content"]] == ["text", "tool_use", "tool_use"]
        assert [m["content"][0]["tool_use_id"] for m in results] == ["t0", "t1"]
    backend.shutdown()


@pytest.mark.parametrize(
    ("choice", "openai_form"),
    [("required", "required"), ("clock", {"type": "function", "function": {"name": "clock"}})],
)
def test_a_choice_is_the_apis_own(stub: Stub, choice: str, openai_form: Any) -> None:
    for kind in ("openai", "anthropic"):
        stub.replies = [CallsTools([("clock", {})]), "Noon."]
        backend = backend_of(kind, stub)
        agent.run(choice, backend=backend)
        backend.shutdown()
    assert stub.bodies[0]["tool_choice"] == openai_form
    assert stub.bodies[2]["tool_choice"] == (
        {"type": "any"} if choice == "required" else {"type": "tool", "name": "clock"}
    )


def test_a_text_model_has_no_tools(stub: Stub) -> None:
    with pytest.raises(UnsupportedError, match="tools is not possible there; use a chat model"):
        agent.run(backend=OpenAI("m", False, base_url=f"{stub.url}/v1", api_key="k"))
    assert stub.requests == []


def test_results_without_a_call_are_what_the_user_says() -> None:
    assert paired([{"role": "tool", "tool_call_id": "x", "content": "r"}]) == ({"role": "user", "content": "r"},)
    assert name_in('<tool_call>\n{"name": "a\\"b", "arguments": ') == 'a"b'
