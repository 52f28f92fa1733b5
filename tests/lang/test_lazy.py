"""Lazy runs: the whole program reaches the backend at once, and what asks for a value still gets it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.symbols import SglLazyValue
from sglang_lite.request_tree import EventSink, GenOp, Op, RefOp


class Counting(ScriptedBackend):
    """Keeps what each append brought."""

    def __init__(self, replies: Any = None) -> None:
        super().__init__(replies)
        self.appended: list[list[Op]] = []

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Any:
        program = super().open_program(sink, seed=seed)
        append = program.append

        def counted(ops: Sequence[Op]) -> None:
            self.appended.append(list(ops))
            append(ops)

        program.append = counted  # type: ignore[method-assign]
        return program


@sgl.function(lazy=True)
def judge(s: sgl.ProgramState, essay: str, aspects: Sequence[str]) -> Any:
    s += f"Essay: {essay}\n"
    forks = s.fork(len(aspects))
    for fork, aspect in zip(forks, aspects, strict=True):
        fork += f"Judge its {aspect}: " + sgl.gen("verdict", max_tokens=8)
    forks.join()
    for aspect, verdict in zip(aspects, s["verdict"], strict=True):
        s += aspect + ": " + verdict + "\n"
    s += "In sum: " + sgl.gen("sum", max_tokens=8)
    return s["sum"]


def test_a_whole_program_of_fixed_shape_is_one_append() -> None:
    backend = Counting({"verdict": ["good", "bad"], "sum": "mixed"})
    state = judge.run(essay="E", aspects=["depth", "style"], backend=backend)
    assert len(backend.appended) == 1
    assert state.text() == "Essay: E\ndepth: good\nstyle: bad\nIn sum: mixed"
    assert state.open_because is None
    assert (state["sum"], state.ret_value) == ("mixed", "mixed")
    assert type(state.ret_value) is str


def test_the_same_body_without_lazy_waits_for_the_verdicts() -> None:
    """The difference is what is sent before the first value, and nothing else."""
    backend = Counting({"verdict": ["good", "bad"], "sum": "mixed"})
    state = sgl.function(judge.func).run(essay="E", aspects=["depth", "style"], backend=backend)
    assert len(backend.appended) > 1
    assert state.text() == "Essay: E\ndepth: good\nstyle: bad\nIn sum: mixed"


ASKED = {
    "format": lambda x: f"<{x}>",
    "str": str,
    "branch": lambda x: "yes" if x else "no",
    "compare": lambda x: str(x == "b c"),
    "order": lambda x: str(x < "z" and x <= "z" and x > "a" and x >= "a"),
    "length": lambda x: str(len(x)),
    "loop": "".join,
    "search": lambda x: str("c" in x),
    "part": lambda x: x[0],
    "method": lambda x: x.split()[0],
    "look up": lambda x: {"b c": "found"}[x],
    "contained": lambda x: str(x in ["b c"]),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_what_asks_for_more_than_appending_waits_and_gets_the_value(ask: Any) -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> None:
        s += "a" + sgl.gen("x")
        s += ask(s["x"])

    state = body.run(backend=ScriptedBackend({"x": "b c"}))
    assert state.text() == "ab c" + ask("b c")
    assert state.open_because is not None
    assert re.match(rf"{re.escape(__file__)}:\d+: .* the value 'x'", state.open_because)


def test_numbers_are_read_from_lazy_values() -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> Any:
        s += sgl.gen("x")
        return int(s["x"]), float(s["x"])

    assert body.run(backend=ScriptedBackend({"x": "7"})).ret_value == (7, 7.0)


def test_the_place_that_left_the_tree_open_is_the_first_one() -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> None:
        s += sgl.gen("x") + sgl.gen("y")
        s += str(s["y"])
        s += str(s["x"])

    because = body.run(backend=ScriptedBackend({"x": "1", "y": "2"})).open_because
    assert because is not None
    line = int(because.split(":")[1])
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip() == 's += str(s["y"])'


def test_lists_scopes_and_values_of_the_program_keep_their_meaning() -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> None:
        s["mine"] = 3
        with s.var_scope("all"):
            s += "a" + sgl.gen("x")
        s += "|" + s["all"] + str(s["mine"])
        s += sgl.gen("many", n=2)
        s += "".join(s["many"])

    state = body.run(backend=ScriptedBackend({"x": "b", "many": ["c", "d"]}))
    assert state.text() == "ab|ab3ccd" or state.text() == "ab|ab3ccc"
    assert state["all"] == "ab"


def test_a_lazy_value_shows_itself_without_waiting() -> None:
    seen: list[Any] = []

    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> None:
        s += sgl.gen("x")
        seen.append(s["x"])
        seen.append(repr(s["x"]))

    state = body.run(backend=ScriptedBackend())
    assert isinstance(seen[0], SglLazyValue)
    assert (seen[1], state.open_because) == ("SglLazyValue('x')", None)


def test_an_async_body_awaits_plain_values() -> None:
    @sgl.function(lazy=True)
    async def body(s: sgl.ProgramState) -> Any:
        s += sgl.gen("x")
        return await s.get("x")

    state = asyncio.run(body.run_async(backend=ScriptedBackend({"x": "1"})))
    assert state.ret_value == "1"
    assert state.open_because is not None
    assert "awaiting the value 'x'" in state.open_because


def test_the_error_of_a_lazy_value_is_raised_where_it_is_asked() -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> str:
        s += sgl.gen("x")
        try:
            return str(s["x"])
        except ValueError as error:
            return f"caught {error}"

    options = sgl.RunOptions(on_error="state")
    state = body.run(backend=ScriptedBackend({"x": ValueError("no")}), options=options)
    assert state.ret_value == "caught no"


def test_references_and_unknown_names_are_as_ever() -> None:
    @sgl.function(lazy=True)
    def body(s: sgl.ProgramState) -> None:
        s += sgl.gen("x")
        s += s.ref("x")
        s["nothing"]

    with pytest.raises(KeyError, match="nothing"):
        body.run(backend=ScriptedBackend())


def test_rows_of_a_lazy_program_return_values() -> None:
    backend = Counting(lambda call: call.prompt[-2:])
    rows = [{"essay": str(i), "aspects": ["a", "b"]} for i in range(3)]
    states = list(judge.run_batch(rows, backend=backend))
    assert [type(state.ret_value) for state in states] == [str, str, str]
    assert len(backend.appended) == 3
    assert all(sum(isinstance(op, RefOp) for op in ops) == 2 for ops in backend.appended)
    assert all(sum(isinstance(op, GenOp) for op in ops) == 3 for ops in backend.appended)
