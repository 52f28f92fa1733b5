"""Text as it comes: pieces, order, ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen, select
from tests.lang.support import TIMEOUT, Background, HandBackend


@function
def two_gens(s: ProgramState) -> None:
    s.user("q")
    s += "A: " + gen("a") + " B: " + gen("b")


def test_pieces_come_as_the_backend_sends_them() -> None:
    backend = HandBackend()
    state = two_gens.run(backend=backend, stream=True)
    program = backend.wait_program()
    program.wait_gen(1)
    a, b = program.gens()
    everything, only_b = state.text_iter(), state.text_iter("b")
    program.done_others()
    assert [next(everything) for _ in range(2)] == ["q", "A: "]
    program.delta(a, "x")
    assert next(everything) == "x"
    program.delta(a, "y")
    program.done(a, "xyz")
    assert next(everything) == "yz"
    assert next(everything) == " B: "
    program.delta(b, "1")
    program.delta(b, "2")
    assert next(only_b) == "12"
    program.done(b, "12")
    assert list(only_b) == []
    assert list(everything) == ["12"]
    assert state.text() == "qA: xyz B: 12"


def test_two_readers_and_a_late_one_get_the_same_text() -> None:
    state = two_gens.run(backend=ScriptedBackend({"a": "one two", "b": "three"}), stream=True)
    texts = ["".join(state.text_iter()) for _ in range(3)]
    assert texts == [state.text()] * 3
    assert "".join(state.text_iter("a")) == "one two"


def test_a_reader_waits_for_a_body_that_has_not_got_there() -> None:
    """The body waits for the first value before it appends the second gen."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> str:
        s += gen("a")
        s += s["a"] + gen("b")
        return "done"

    state = f.run(backend=backend, stream=True)
    program = backend.wait_program()
    value = Background(lambda: state["b"])
    meta = Background(lambda: state.get_meta_info("b"))
    pieces = Background(lambda: list(state.text_iter("b")))
    program.done(program.wait_gen(), "A")
    b = program.wait_gen(1)
    program.done_others()
    program.done(b, "B", note=1)
    assert (value.result(), pieces.result(), meta.result()) == ("B", ["B"], {"note": 1})
    assert state.error() is None
    assert state.ret_value == "done"


def test_names_of_scopes_joins_selects_and_set_values_are_streamed() -> None:
    @function
    def f(s: ProgramState) -> None:
        with s.var_scope("v"):
            s += "in " + gen("x")
        s["plain"] = "set"
        s["number"] = 3
        forks = s.fork(2)
        forks += gen("j")
        forks[1]["p"] = "child's"
        forks.join()
        forks = s.fork(1)
        forks += gen("j")
        forks.join()
        s += select("c", ["yes", "no"])

    state = f.run(backend=ScriptedBackend({"x": "X", "j": ["1", "2", "3"], "c": "no"}), stream=True)
    names = ("v", "plain", "number", "j", "p", "c")
    texts = ["".join(state.text_iter(name)) for name in names]
    assert texts == ["in X", "set", "", "123", "child's", "no"]


def test_an_unknown_name_is_a_key_error_at_the_end() -> None:
    state = two_gens.run(backend=ScriptedBackend(), stream=True)
    with pytest.raises(KeyError, match="nope"):
        list(state.text_iter("nope"))
    with pytest.raises(KeyError, match="nope"):
        _ = state["nope"]


def test_without_streaming_the_text_is_one_piece_and_a_name_one_each() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "p " + gen("x") + " " + gen("x")

    state = f.run(backend=ScriptedBackend(["1", "2"]))
    assert list(state.text_iter()) == ["p 1 2"]
    assert list(state.text_iter("x")) == ["1", "2"]
    with pytest.raises(KeyError):
        list(state.text_iter("nope"))


@pytest.mark.parametrize("stream", [False, True])
def test_inside_the_body_a_reader_ends_with_what_is_appended(stream: bool) -> None:
    """The body would wait for itself otherwise."""

    @function
    def f(s: ProgramState) -> list[str]:
        s += "p " + gen("x")
        return ["".join(s.text_iter()), "".join(s.text_iter("x")), "".join(s.fork(1)[0].text_iter())]

    state = f.run(backend=ScriptedBackend(["one two"]), stream=stream)
    state.sync()
    assert state.ret_value == ["p one two", "one two", "p one two"]


@pytest.mark.parametrize("name", [None, "x"])
def test_inside_the_body_a_reader_meets_the_error_of_an_op(name: str | None) -> None:
    @function
    def f(s: ProgramState) -> str:
        forks = s.fork(1)
        forks += gen("x")
        with pytest.raises(ExecutionError, match="planned"):
            list(forks[0].text_iter(name))
        return "went on"

    state = f.run(
        backend=ScriptedBackend([ExecutionError("planned")]), options=RunOptions(on_error="raise"), stream=True
    )
    with pytest.raises(ExecutionError, match="planned"):
        state.sync()
    assert state.ret_value == "went on"


def test_errors_kept_on_the_state_end_the_stream_quietly() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "before " + gen("x") + "after"

    options = RunOptions(on_error="state")
    state = f.run(backend=ScriptedBackend([ExecutionError("planned")]), stream=True, options=options)
    assert "".join(state.text_iter()) == "before "
    assert str(state.error()) == "planned"


def test_a_failed_fork_shows_at_the_end_of_the_stream() -> None:
    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(1)
        forks += gen("x")
        s += "text"
        forks[0].error()

    state = f.run(backend=ScriptedBackend([ExecutionError("in the fork")]), stream=True)
    pieces = state.text_iter()
    assert next(pieces) == "text"
    with pytest.raises(ExecutionError, match="in the fork"):
        next(pieces)


def collect(iterator: Any) -> list[Any]:
    async def main() -> list[Any]:
        return [piece async for piece in iterator()]

    return asyncio.run(asyncio.wait_for(main(), TIMEOUT))


def test_async_pieces_with_meta_info() -> None:
    state = two_gens.run(backend=ScriptedBackend({"a": "one two", "b": "three"}), stream=True)
    pairs = collect(lambda: state.text_async_iter("a", return_meta_data=True))
    assert "".join(text for text, _ in pairs) == "one two"
    assert pairs[-1][1]["completion_tokens"] == 2
    assert "".join(collect(state.text_async_iter)) == state.text()
    assert "".join(collect(lambda: state.text_async_iter("b"))) == "three"


def test_async_without_streaming_is_one_piece() -> None:
    state = two_gens.run(backend=ScriptedBackend({"a": "one two", "b": "three"}))
    assert collect(state.text_async_iter) == [state.text()]
    assert collect(lambda: state.text_async_iter("a")) == ["one two"]


def test_an_async_reader_that_is_left_listens_no_more() -> None:
    backend = HandBackend()
    state = two_gens.run(backend=backend, stream=True)
    program = backend.wait_program()
    program.wait_gen(1)
    program.done_others()

    async def main() -> str:
        pieces = state.text_async_iter()
        first = await anext(pieces)
        await pieces.aclose()
        return first

    assert asyncio.run(main()) == "q"
    assert state.branch.session.signal.listeners == []
    for op in program.gens():  # events after the loop was closed
        program.done(op, "x")
    assert state.text() == "qA: x B: x"


def test_emoji_and_marks_come_whole() -> None:
    text = "ok \U0001f469\u200d\U0001f4bb \u6b6a \u0e2d\u0e35\u0e01 \u00e9!"
    state = two_gens.run(backend=ScriptedBackend({"a": text, "b": ""}), stream=True)
    pieces = list(state.text_iter("a"))
    assert "".join(pieces) == state["a"] == text
