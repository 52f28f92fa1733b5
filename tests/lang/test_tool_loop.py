"""The loop of calls and results: steps, errors, async and parallel calls."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pydantic
import pytest

import sglang_lite as sgl
from sglang_lite.errors import ProgramError, RequestError


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def fail(why: str) -> None:
    """Fails."""
    raise OSError(why)


async def later(x: int) -> int:
    """Later."""
    await asyncio.sleep(0)
    return x * 2


@sgl.function
def agent(s: sgl.ProgramState, tools: list[Any], **options: Any) -> Any:
    s += sgl.user("go")
    return sgl.tool_loop(s, tools, **options)


def results(state: sgl.ProgramState) -> list[str]:
    return [message["content"] for message in state.messages() if message["role"] == "tool"]


def test_the_model_reads_what_its_calls_gave() -> None:
    backend = sgl.ScriptedBackend([call("add", a=1, b=2), call("add", a=3, b=4) + call("later", x=5), "17"])
    state = agent.run([add, later], backend=backend)
    assert state.ret_value.text == state["answer"].text == "17"
    assert results(state) == ["3", "7", "10"]
    calls = [c["id"] for message in state.messages() for c in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in state.messages() if message["role"] == "tool"]
    assert calls == answered
    assert len(set(calls)) == 3


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (call("fail", why="no disk"), '{"error": "OSError: no disk"}'),
        (call("sub", a=1), "there is none, only ['add', 'fail']"),
        (call("add", a="x", b=1), "calling the tool 'add': "),
        ("<tool_call>{</tool_call>", "a tool call is no JSON"),
    ],
)
def test_an_error_goes_to_the_model_or_is_raised(reply: str, told: str) -> None:
    state = agent.run([add, fail], backend=sgl.ScriptedBackend([reply, "sorry"]))
    (shown,) = results(state)
    assert told in shown
    assert state.ret_value.text == "sorry"
    with pytest.raises((OSError, RequestError)):
        agent.run([add, fail], on_error="raise", backend=sgl.ScriptedBackend([reply, "sorry"]))


def test_the_steps_are_limited_and_the_last_turn_calls_nothing() -> None:
    again = call("add", a=1, b=1)
    backend = sgl.ScriptedBackend([again] * 3)
    state = agent.run([add], max_steps=2, backend=backend)
    assert len(results(state)) == 2
    assert state.ret_value.tool_calls == ()
    params = [c.params for c in backend.calls]
    assert [p.constraint for p in params if p is not None] == ["structural_tag", "structural_tag", None]
    with pytest.raises(sgl.ToolLoopError, match="in the last of 2 steps; raise max_steps"):
        agent.run([add], max_steps=2, on_limit="raise", backend=sgl.ScriptedBackend([again] * 3))


def test_the_runs_samples_are_not_the_loops() -> None:
    state = agent.run([add], n=2, backend=sgl.ScriptedBackend(["done"]))
    assert state.ret_value.text == "done"


def test_a_required_call_is_demanded_once() -> None:
    backend = sgl.ScriptedBackend([call("add", a=1, b=1), "2"])
    agent.run([add], tool_choice="required", temperature=0, backend=backend)
    forms = [
        json.loads(c.params.structural_tag)["format"]["type"]
        for c in backend.calls
        if c.params and c.params.structural_tag
    ]
    assert forms == ["or", "triggered_tags"]


def test_calls_of_one_turn_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=20)

    def meet(n: int) -> int:
        """Meets."""
        both.wait()
        return n

    state = agent.run([meet], backend=sgl.ScriptedBackend([call("meet", n=1) + call("meet", n=2), "met"]))
    assert results(state) == ["1", "2"]


@pytest.mark.parametrize("parallel", [True, False])
def test_async_programs_run_both_kinds_of_functions(parallel: bool) -> None:
    @sgl.function
    async def program(s: sgl.ProgramState) -> Any:
        s += sgl.user("go")
        return await sgl.tool_loop_async(s, [add, later, fail], parallel=parallel)

    script = [call("add", a=1, b=2) + call("later", x=4) + call("fail", why="x"), "done"]
    state = asyncio.run(program.run_async(backend=sgl.ScriptedBackend(script)))
    assert results(state) == ["3", "8", '{"error": "OSError: x"}']
    assert state.ret_value.text == "done"


def test_an_async_tool_in_a_plain_loop_inside_an_event_loop_says_what_to_write() -> None:
    async def main() -> None:
        agent.run([later], backend=sgl.ScriptedBackend([call("later", x=1), "x"]))

    with pytest.raises(ProgramError, match=r"write await tool_loop_async\(\.\.\.\)"):
        asyncio.run(main())


class Note(pydantic.BaseModel):
    """A note."""

    text: str


def test_tools_that_are_no_functions_have_handlers() -> None:
    kept: list[Note] = []
    keep: Callable[[Note], None] = kept.append
    state = agent.run([Note], handlers={"Note": keep}, backend=sgl.ScriptedBackend([call("Note", text="hi"), "kept"]))
    assert kept == [Note(text="hi")]
    assert results(state) == ["null"]
    with pytest.raises(RequestError, match=r"\['Note'\] are no functions; give handlers"):
        agent.run([Note], backend=sgl.ScriptedBackend(["x"]))


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"on_error": "ignore"}, {"on_limit": "stop"}, {"tools": []}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"^(running a tool loop|reading tools)"):
        agent.run(**{"tools": [add], **options}, backend=sgl.ScriptedBackend(["x"]))


def test_a_result_is_text_or_json() -> None:
    @sgl.function
    def program(s: sgl.ProgramState) -> None:
        s += sgl.user("go") + sgl.assistant(sgl.gen("x", tools=[add]))
        for value in ("plain", {"a": {1}}, None, 1.5):
            s.tool_result(s["x"].tool_calls[0], value)

    state = program.run(backend=sgl.ScriptedBackend([call("add", a=1, b=2)]))
    assert results(state) == ["plain", '{"a": [1]}', "null", "1.5"]

    @sgl.function
    def wrong(s: sgl.ProgramState) -> None:
        s.tool_result("add", 1)  # pyright: ignore[reportArgumentType] - that is what is tested

    with pytest.raises(RequestError, match=r"expected one of s\[name\]\.tool_calls"):
        wrong.run(backend=sgl.ScriptedBackend([]))
