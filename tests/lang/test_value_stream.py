"""Parts of values while their text comes, on a backend whose events the test delivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import RequestError, TruncatedError, ValidationError
from tests.lang.support import Background, HandBackend
from tests.lang.typed.types_used import Pet, Positive, Toy

CUT = {"type": "length", "length": 3}


@sgl.function
def make(s: Any, kind: Any) -> None:
    s += sgl.gen("x", type=kind)


def started(kind: Any, **arguments: Any) -> tuple[Any, Any, Any]:
    backend = HandBackend()
    state = make.run(kind, backend=backend, stream=True, **arguments)
    program = backend.wait_program()
    return state, program, program.wait_gen()


def test_each_element_comes_as_soon_as_it_is_complete() -> None:
    state, program, op = started(list[Toy])
    parts = state.value_iter("x")
    first = Background(lambda: next(parts))
    program.delta(op, '[{"name":"ball"}')
    assert first.is_running
    program.delta(op, ", ")
    assert first.result() == Toy("ball")
    program.delta(op, '{"name":"doll"}]')
    assert next(parts) == Toy("doll")
    program.done(op, '[{"name":"ball"}, {"name":"doll"}]')
    assert list(parts) == []
    assert state["x"] == [Toy("ball"), Toy("doll")]


def test_members_of_an_object_come_with_their_names() -> None:
    state, program, op = started(Pet)
    program.done(op, '{"name":"Rex","toys":[{"name":"b"}]}')
    assert list(state.value_iter("x")) == [("name", "Rex"), ("toys", [Toy("b")])]


@pytest.mark.parametrize(
    ("kind", "text", "parts"), [(int, "12", [12]), (str, "a", ["a"]), (int | None, "3", [3]), (list[int], "[]", [])]
)
def test_a_value_without_parts_comes_as_a_whole(kind: Any, text: str, parts: list[Any]) -> None:
    state, program, op = started(kind)
    program.done(op, text)
    assert list(state.value_iter("x")) == parts


def test_an_error_comes_after_the_parts_before_it() -> None:
    state, program, op = started(list[int])
    program.done(op, "[1, 2, 3", finish_reason=CUT)
    found: list[Any] = []
    with pytest.raises(TruncatedError):
        found.extend(state.value_iter("x"))
    assert found == [1, 2]


def test_a_part_of_another_type_is_left_to_the_whole_value_to_tell() -> None:
    state, program, op = started(list[int])
    program.delta(op, '[1, "x", ')
    program.done(op, '[1, "x", 3]')
    with pytest.raises(ValidationError, match=r"\$\[1\]"):
        list(state.value_iter("x"))


def test_a_value_that_may_be_taken_back_shows_nothing_before_it_is_accepted() -> None:
    _, _, op = started(list[Positive])
    assert op.hold
    assert not op.stream


def test_an_event_loop_is_not_blocked() -> None:
    state, program, op = started(list[int])

    async def read() -> list[int]:
        found: list[int] = []
        async for part in state.value_async_iter("x"):
            found.append(part)
            if part == 1:  # only now does the rest come
                program.done(op, "[1, 2]")
        return found

    program.delta(op, "[1,")
    assert asyncio.run(asyncio.wait_for(read(), 20)) == [1, 2]


def test_parts_are_of_one_sample() -> None:
    @sgl.function
    def two(s: Any) -> None:
        s += sgl.gen("x", n=2, type=int)

    state = two.run(backend=sgl.ScriptedBackend([["1", "2"]]))
    assert state["x"] == [1, 2]
    with pytest.raises(RequestError, match="one gen"):
        list(state.value_iter("x"))
    with pytest.raises(KeyError):
        list(state.value_iter("y"))


def test_after_a_join_the_parts_of_all_come_in_order() -> None:
    @sgl.function
    def forked(s: Any) -> None:
        forks = s.fork(2)
        forks += sgl.gen("x", type=list[int])
        forks.join()

    state = forked.run(backend=sgl.ScriptedBackend(["[1]", "[2, 3]"]))
    assert list(state.value_iter("x")) == [1, 2, 3]
