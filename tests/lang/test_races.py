"""`join(first=)` and `join(vote=)`: who wins, what names mean then, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ExecutionError, ProgramError, RequestError
from sglang_lite.lang.api import function, gen, select
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.options import RunOptions
from sglang_lite.request_tree import JoinOp, OpDone
from tests.lang.support import Background, HandBackend, HandProgram


def racing(count: int = 3, **rule: Any) -> tuple[HandProgram, Background, dict[str, Any]]:
    """A program with a race of `count` states, on a backend that the test answers; and what its body saw."""
    backend, seen = HandBackend(), dict[str, Any]()

    def body(s: Any) -> None:
        s += "Q"
        forks = s.fork(count)
        for fork in forks:
            fork += gen("x") + gen("y")
        seen["forks"] = forks
        seen["result"] = result = forks.join(**rule)
        seen["winners"] = result.winners
        seen["x"], seen["y"] = s["x"], s["y"]
        seen["text"] = list(s.text_iter("x"))

    running = Background(lambda: function(body).run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: len(program.gens()) == 2 * count)
    program.done_others = lambda: [  # type: ignore[method-assign]
        program.done(op, getattr(op, "text", ""))
        for op in list(program.ops)
        if op.id not in program.ended and not isinstance(op, JoinOp) and op not in program.gens()
    ]
    return program, running, seen


def join_of(program: HandProgram) -> JoinOp:
    return next(op for op in program.ops if isinstance(op, JoinOp))


def finish(program: HandProgram, child: int, x: str, y: str) -> None:
    program.done(program.gens()[2 * child], x)
    program.done(program.gens()[2 * child + 1], y)


def test_the_lists_are_those_of_the_winners_in_their_order() -> None:
    program, running, seen = racing(first=2)
    assert join_of(program).first == 2
    finish(program, 2, "c", "C")
    finish(program, 0, "a", "A")
    for op in program.gens()[2:4]:
        program.fail(op, CancelledError("decided"))
    program.sink(_won(program, [2, 0]))
    program.done_others()
    state = running.result()
    assert (seen["winners"], seen["x"], seen["y"], seen["text"]) == ([2, 0], ["c", "a"], ["C", "A"], ["c", "a"])
    assert state["x"] == ["c", "a"]
    assert state.error() is None


def _won(program: HandProgram, winners: list[int], value: str | None = None) -> Any:
    program.ended.add(join_of(program).id)
    return OpDone(join_of(program).id, value=value, meta={"winners": winners})


def test_a_losers_value_is_cancelled_and_no_error_of_the_run() -> None:
    program, running, seen = racing(first=1)
    finish(program, 1, "b", "B")
    for op in [*program.gens()[:2], *program.gens()[4:]]:
        program.fail(op, CancelledError("decided"))
    program.sink(_won(program, [1]))
    program.done_others()
    running.result()
    loser = seen["forks"][0]
    with pytest.raises(CancelledError):
        loser["x"]
    with pytest.raises(CancelledError):
        list(loser.text_iter())


def votes(replies: list[Any], **options: Any) -> Any:
    def body(s: Any) -> Any:
        s += "Q"
        forks = s.fork(len(replies))
        for fork in forks:
            fork += gen("answer") + "!" + gen("why")
        result = forks.join(vote="answer")
        return result.winners, result.value, result.votes, s["answer"], s["why"]

    backend = ScriptedBackend({"answer": replies, "why": [f"w{i}" for i in range(len(replies))]})
    return function(body).run(backend=backend, **options)


def test_a_vote_gives_the_value_that_won_and_the_reasons_of_those_who_gave_it() -> None:
    state = votes(["4", "5", "5"])
    assert state.ret_value == ([1, 2], "5", {"4": 1, "5": 2}, "5", ["w1", "w2"])
    assert state["answer"] == "5"
    assert "".join(state.text_iter("answer")) == "5"


def test_a_failed_state_has_no_vote_and_harms_nothing() -> None:
    backend_error = RuntimeError("no")

    def body(s: Any) -> Any:
        forks = s.fork(3)
        forks += select("x", ["a", "b"])
        return forks.join(vote="x").winners, s["x"]

    state = function(body).run(backend=ScriptedBackend({"x": [backend_error, "b", "b"]}))
    assert state.ret_value == ([1, 2], "b")
    assert state.error() is None


def test_all_that_fail_make_the_run_fail_with_the_cause() -> None:
    def body(s: Any) -> None:
        forks = s.fork(2)
        forks += gen("x")
        forks.join(first=1)

    backend = ScriptedBackend({"x": [RuntimeError("first"), RuntimeError("second")]})
    with pytest.raises(ExecutionError, match=r"first=1: 2 failed .*RuntimeError: first") as failed:
        function(body).run(backend=backend)
    assert isinstance(failed.value.__cause__, RuntimeError)
    backend = ScriptedBackend({"x": [RuntimeError("first"), RuntimeError("second")]})
    state = function(body).run(backend=backend, options=RunOptions(on_error="state"))
    assert isinstance(state.error(), ExecutionError)


def test_a_join_without_enough_winners_says_so_in_a_clear_error() -> None:
    def body(s: Any) -> None:
        forks = s.fork(3)
        forks += gen("x")
        forks.join(first=3)

    with pytest.raises(ExecutionError, match="first=3: 1 failed and only 2 can still win"):
        function(body).run(backend=ScriptedBackend({"x": ["a", RuntimeError("no"), "b"]}))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"first": 0}, "from 1 to 2"),
        ({"first": 3}, "from 1 to 2"),
        ({"first": True}, "first=True"),
        ({"first": 1, "vote": "x"}, "one of the two"),
        ({"mode": "concate_and_append", "first": 1}, "one of the two"),
        ({"vote": "z"}, r"no state has a value called 'z' to vote with, they have \['x'\]"),
    ],
)
def test_a_wrong_rule_is_refused(rule: dict[str, Any], words: str) -> None:
    def body(s: Any) -> None:
        forks = s.fork(2)
        forks += gen("x")
        with pytest.raises(RequestError, match=words):
            forks.join(**rule)
        assert forks.join() is None

    function(body).run(backend=ScriptedBackend({"x": "a"}))


def test_lists_of_joins_grow_also_by_races() -> None:
    def body(s: Any) -> None:
        for rule in ({}, {"first": 1}, {}, {"first": 2}):
            forks = s.fork(2)
            forks += gen("x")
            forks.join(**rule)

    state = function(body).run(backend=ScriptedBackend({"x": list("abcdefgh")}))
    assert state["x"] == ["a", "b", "c", "e", "f", "g", "h"]
    assert list(state.text_iter("x")) == ["a", "b", "c", "e", "f", "g", "h"]
    assert len(state.get_meta_info("x")) == 7
    assert state.get_text("x") == state["x"]


def test_async_bodies_race_without_blocking() -> None:
    async def body(s: Any) -> Any:
        forks = s.fork(3)
        forks += gen("x")
        result = forks.join(first=2)
        with pytest.raises(ProgramError, match=r"await result.wait\(\)"):
            _ = result.winners
        winners = await result.wait()
        return winners, result.winners, await s.get("x"), s["x"]

    state = function(body).run(backend=ScriptedBackend({"x": list("abc")}))
    assert state.ret_value == ([0, 1], [0, 1], ["a", "b"], ["a", "b"])


def test_a_vote_in_an_async_body() -> None:
    async def body(s: Any) -> Any:
        forks = s.fork(3)
        forks += gen("x")
        forks.join(vote="x")
        return await s.get("x")

    assert function(body).run(backend=ScriptedBackend({"x": ["a", "b", "b"]})).ret_value == "b"


def test_a_traced_race_waits_for_nothing() -> None:
    def body(s: Any) -> None:
        forks = s.fork(2)
        forks += gen("x")
        result = forks.join(vote="x")
        s += "Won: " + s["x"] + result.value
        s["winners"] = result.winners

    traced = function(body).trace()
    assert traced.is_closed
    assert [op.vote for op in traced.tree.ops.values() if isinstance(op, JoinOp)] == ["x"]


def test_an_empty_fork_has_no_race() -> None:
    def body(s: Any) -> None:
        assert s.fork(0).join() is None

    function(body).run(backend=ScriptedBackend({}))
