"""Forks handled together, and what a join makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sglang_lite.errors import ExecutionError, ProgramError, RequestError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, ScriptedCall, function, gen, user
from sglang_lite.request_tree import JoinOp
from tests.lang.support import Background, HandBackend


def run(body: Callable[[ProgramState], Any], replies: Any = None, **given: Any) -> ProgramState:
    return function(lambda s: body(s)).run(backend=ScriptedBackend(replies), **given)


def echo(call: ScriptedCall) -> str:
    return f"<{call.prompt}>"


def test_a_group_is_a_sequence_of_states() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(3)
        assert len(group) == len(group.states) == len(list(group)) == 3
        assert group[1] is group.states[1]
        with pytest.raises(IndexError):
            _ = group[3]
        group[1] += "x"
        with pytest.raises(RequestError, match="assigning to state 1"):
            group[1] = group[2]
        assert [state.text() for state in group] == ["", "x", ""]

    run(body)


@pytest.mark.parametrize(
    ("added", "texts"),
    [
        ("a", ["a", "a"]),
        (user("a"), ["USER:a\n", "USER:a\n"]),
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        (lambda i: f"{i}" + gen("x"), ["0<p0>", "1<p1>"]),
    ],
)
def test_appending_to_a_group_takes_one_for_all_or_one_for_each(added: Any, texts: list[str]) -> None:
    def body(s: ProgramState) -> None:
        s += "p"
        group = s.fork(2)
        group += added
        assert [state.text() for state in group] == ["p" + text for text in texts]
        assert s.text() == "p"

    run(body, echo)


@pytest.mark.parametrize(
    ("added", "message"), [(["a"], "got 1 values, expected 2"), (3, "expected a str"), (None, "got None")]
)
def test_appending_to_a_group_refuses_what_does_not_fit(added: Any, message: str) -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(2)
        with pytest.raises(RequestError, match=message):
            group += added

    run(body)


def test_gather_makes_lists_of_what_the_children_bound() -> None:
    def body(s: ProgramState) -> None:
        s["inherited"] = "mine"
        s += gen("before")
        group = s.fork(3)
        for i, child in enumerate(group):
            child += f"{i}" + gen("x")
            child["plain"] = i
            if i == 1:
                with child.var_scope("only"):
                    child += "one"
        group.join()
        assert (s["inherited"], s["before"]) == ("mine", "<>")
        assert s["only"] == ["one"]

    state = run(body, echo)
    assert state["x"] == ["<<>0>", "<<>1>", "<<>2>"]
    assert state["plain"] == [0, 1, 2]
    assert state.text() == "<>"


def test_gather_replaces_a_name_that_the_parent_had_itself() -> None:
    """It is the latest meaning of the name, and no value of a child is lost."""

    def body(s: ProgramState) -> None:
        s += gen("x")
        group = s.fork(2)
        group += gen("x")
        group.join()

    assert run(body, ["own", "a", "b"])["x"] == ["a", "b"]


def test_gather_of_a_name_bound_twice_takes_the_latest() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(1)
        group += gen("x") + gen("x")
        group.join()

    assert run(body, ["1", "2"])["x"] == ["2"]


def test_forks_in_forks_gather_lists_of_lists() -> None:
    def body(s: ProgramState) -> None:
        outer = s.fork(2)
        outer += lambda i: f"{i}"
        for child in outer:
            inner = child.fork(2)
            inner += lambda i: f"{i}" + gen("x")
            inner.join()
        outer.join()

    assert run(body, echo)["x"] == [["<00>", "<01>"], ["<10>", "<11>"]]


def test_concat_appends_what_each_child_added_in_order() -> None:
    def body(s: ProgramState) -> None:
        s += "pre "
        group = s.fork(3)
        group += lambda i: f"[{i}" + gen("x") + "]"
        group.join("concate_and_append")
        s += "!"
        assert "x" not in s

    assert run(body, {"x": "v"}).text() == "pre [0v][1v][2v]!"


def test_concat_of_a_failed_child_fails_the_parent() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(2)
        group += gen("x")
        group.join("concate_and_append")
        s += gen("y")

    backend = ScriptedBackend({"x": ["a", ExecutionError("child")], "y": "never"})
    state = function(lambda s: body(s)).run(backend=backend, options=RunOptions(on_error="state"))
    assert str(state.error()) == "child"
    with pytest.raises(ExecutionError, match="child"):
        _ = state["y"]
    assert [call.name for call in backend.calls] == ["x", "x"]


def test_joining_twice_or_in_an_unknown_way_is_an_error() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(2)
        with pytest.raises(RequestError, match="got mode='first', expected one of"):
            group.join("first")
        group.join()
        with pytest.raises(ProgramError, match="joined before"):
            group.join()
        with pytest.raises(ProgramError, match="the branch has ended"):
            group += "more"
        with pytest.raises(ProgramError, match="the branch has ended"):
            group[0].fork(2)

    run(body)


def test_children_can_be_read_without_and_after_a_join() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(2)
        group += lambda i: f"{i}" + gen("x")
        assert [child["x"] for child in group] == ["<0>", "<1>"]
        group.join()
        assert [child.text() for child in group] == ["0<0>", "1<1>"]

    run(body, echo)


def test_run_waits_for_children_that_are_never_joined() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> Any:
        group = s.fork(2)
        group += gen("x")
        return group

    background = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait_gen(1)
    program.done_others()
    program.done(program.gens()[0], "a")
    assert background.is_running
    program.done(program.gens()[1], "b")
    assert [child["x"] for child in background.result().ret_value] == ["a", "b"]


def test_a_failed_child_that_is_never_joined_nor_read_raises_at_the_end() -> None:
    def body(s: ProgramState) -> None:
        group = s.fork(2)
        group += gen("x")

    with pytest.raises(ExecutionError, match="unseen"):
        run(body, ["a", ExecutionError("unseen")])


def test_join_ops_name_children_and_mode() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s.fork(2).join()
        s.fork(1).join("concate_and_append")

    background = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: len(program.ops) == 4)
    joins = [op for op in program.ops if isinstance(op, JoinOp)]
    program.done_others()
    background.result()
    assert [(op.branch, op.children, op.mode) for op in joins] == [(0, (1, 2), "gather"), (0, (3,), "concat")]
