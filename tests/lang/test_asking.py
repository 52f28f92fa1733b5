"""Token counts and the confidence of selects."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang.api import function, gen, select
from sglang_lite.lang.asking import TokenCount
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import CountOp
from tests.lang.support import Background, HandBackend


def test_the_count_is_of_the_place_where_it_is_asked_for() -> None:
    def body(s: Any) -> Any:
        s += "one two"
        before = s.num_tokens()
        s += " three" + gen("x")
        return before, s.num_tokens(), s.tokens_left(), s["x"]

    state = function(body).run(backend=ScriptedBackend({"x": " four"}))
    assert state.ret_value == (2, 4, None, " four")
    assert state.text() == "one two three four"


def test_what_is_left_is_the_context_less_the_count() -> None:
    backend = HandBackend()
    running = Background(lambda: function(lambda s: s.tokens_left()).run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: bool(program.ops))
    (op,) = program.ops
    assert isinstance(op, CountOp)
    program.done(op, num_tokens=90, context_len=100)
    assert running.result().ret_value == 10


def test_a_full_context_has_nothing_left() -> None:
    assert TokenCount(12, 10).tokens_left == 0
    assert TokenCount(12, None).tokens_left is None


def test_async_bodies_await_the_count() -> None:
    async def body(s: Any) -> Any:
        s += "one two"
        with pytest.raises(ProgramError, match=r"await s.count\(\)"):
            s.num_tokens()
        return await s.count()

    assert function(body).run(backend=ScriptedBackend({})).ret_value == TokenCount(2, None)


def test_the_confidence_is_the_softmax_of_the_scores() -> None:
    """The scripted backend makes up scores of -0.1 for its choice and -1.0 for others."""

    def body(s: Any) -> Any:
        s += select("x", ["a", "b", "c"])
        return s.confidence("x")

    expected = math.exp(-0.1) / (math.exp(-0.1) + 2 * math.exp(-1.0))
    state = function(body).run(backend=ScriptedBackend({"x": "b"}))
    assert state.ret_value == pytest.approx(expected)
    assert state.confidence("x") == state.ret_value


def test_after_a_join_it_is_a_list_and_of_a_vote_that_of_the_first_winner() -> None:
    def body(s: Any) -> None:
        for name, rule in (("x", {}), ("x", {"first": 1}), ("y", {"first": 1}), ("z", {"vote": "z"})):
            forks = s.fork(2)
            forks += select(name, ["a", "b"])
            forks.join(**rule)

    state = function(body).run(backend=ScriptedBackend({"*": "a"}))
    one = state.confidence("z")
    assert state.confidence("x") == [one] * 3
    assert state.confidence("y") == [one]


def test_only_selects_have_one() -> None:
    def body(s: Any) -> None:
        s += gen("x")
        s["plain"] = 1

    state = function(body).run(backend=ScriptedBackend())
    for name in ("x", "plain"):
        with pytest.raises(RequestError, match="not the value of a select"):
            state.confidence(name)
    with pytest.raises(KeyError):
        state.confidence("nothing")


def test_a_trace_knows_neither() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        s += select("x", ["a", "b"])
        s += "left: " + s.tokens_left() + s.num_tokens() + s.confidence("x")
        s.rewind(mark)

    assert function(body).trace().is_closed
