"""Going back to a mark in the language: text, messages, names, scopes, forks and streams."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ProgramError
from sglang_lite.lang.api import assistant, function, gen, select, user
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.marks import Mark, Rewound
from sglang_lite.request_tree import RefuseOp, RewindOp
from tests.lang.support import Background, HandBackend


def run(body: Any, replies: Any, **kwargs: Any) -> Any:
    return function(body).run(backend=ScriptedBackend(replies), **kwargs)


def test_the_text_goes_back_and_the_next_prompt_with_it() -> None:
    backend = ScriptedBackend({"x": ["one", "two"]})

    def body(s: Any) -> None:
        s += "Q:"
        mark = s.mark()
        s += "a " + gen("x")
        s.rewind(mark)
        s += "b " + gen("x")

    state = function(body).run(backend=backend)
    assert state.text() == "Q:b two"
    assert [call.prompt for call in backend.calls] == ["Q:a ", "Q:b "]


def test_names_keep_what_they_mean_whether_read_before_or_not() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        s += gen("x") + gen("y")
        assert s["x"] == "one"
        s.rewind(mark)
        s += gen("z")
        s["seen"] = s["x"]

    state = run(body, {"x": "one", "y": "two", "z": "three"})
    assert (state["x"], state["y"], state["z"], state["seen"]) == ("one", "two", "three", "one")
    assert state.text() == "three"


def test_messages_and_an_open_turn_go_back() -> None:
    def body(s: Any) -> None:
        s += user("Hi")
        mark = s.mark()
        s += assistant(gen("x"))
        s += user("No.")
        s.rewind(mark)
        s += assistant(gen("x"))
        with s.user():
            s += "in a turn"
            inside = s.mark()
            s += " wrong"
            s.rewind(inside)
            s += " right"

    state = run(body, {"x": ["bad", "good"]})
    assert state.messages() == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "good"},
        {"role": "user", "content": "in a turn right"},
    ]


def test_a_turn_that_was_closed_since_is_open_again() -> None:
    def body(s: Any) -> None:
        s.branch.begin_role("user")
        mark = s.mark()
        s.branch.end_role("user")
        s += assistant("oh")
        s.rewind(mark)
        s += "Hi"
        s.branch.end_role("user")

    assert run(body, {}).messages() == [{"role": "user", "content": "Hi"}]


def test_variable_scopes_are_as_they_were() -> None:
    def body(s: Any) -> None:
        with s.var_scope("all"):
            s += "a"
            mark = s.mark()
            with s.var_scope("part"):
                s += "b" + gen("x")
            s.rewind(mark)
            s += "c"

    state = run(body, {"x": "one"})
    assert (state["all"], state["part"]) == ("ac", "bone")


def test_one_mark_serves_many_times() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        for _ in range(3):
            s.rewind(mark)
            s += gen("x")

    state = run(body, {"x": ["a", "b", "c"]})
    assert (state.text(), state["x"]) == ("c", "c")


def test_live_states_of_a_later_fork_are_cancelled_and_that_is_no_error_of_the_run() -> None:
    backend = ScriptedBackend(lambda call: "one", latency_s=3600)

    def body(s: Any) -> None:
        mark = s.mark()
        child = s.fork(1)[0]
        child += gen("x")
        s.rewind(mark)
        s += "done"
        with pytest.raises(CancelledError):
            child["x"]

    state = function(body).run(backend=backend)
    assert (state.text(), state.error()) == ("done", None)


def test_joined_states_keep_their_values() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        forks = s.fork(2)
        forks += gen("x")
        forks.join()
        kept = s.fork(1)
        kept += "text"
        kept.join("concate_and_append")
        s.rewind(mark)
        s += "end"

    state = run(body, {"x": ["a", "b"]})
    assert (state["x"], state.text()) == (["a", "b"], "end")


def test_a_fork_from_between_keeps_the_text_it_began_with() -> None:
    def body(s: Any) -> None:
        s += "Q"
        first = s.mark()
        s += "a"
        forks = s.fork(1)
        forks += gen("x")
        forks.join()
        s["child"] = forks[0].text()
        s.rewind(first)
        assert forks[0].text() == "Qaone"
        s += "b"
        s["later"] = s.fork(1)[0].text()

    state = run(body, {"x": "one"})
    assert (state["child"], state["later"], state.text()) == ("Qaone", "Qb", "Qb")


def test_marks_of_other_states_and_marks_taken_back_are_refused() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        later = s.mark()
        child = s.fork(1)[0]
        with pytest.raises(ProgramError, match="made on another state"):
            child.rewind(mark)
        s.rewind(mark)
        with pytest.raises(ProgramError, match="rewound past"):
            s.rewind(later)
        s["mark"] = mark

    mark = run(body, {})["mark"]
    assert isinstance(mark, Mark)

    def other(s: Any) -> None:
        with pytest.raises(ProgramError, match="made on another state"):
            s.rewind(mark)

    run(other, {})


def test_a_failed_state_cannot_be_rewound() -> None:
    def body(s: Any) -> None:
        mark = s.mark()
        s += select("x", ["a", "b"])
        s.rewind(mark)

    with pytest.raises(ValueError, match="no"):
        run(body, [ValueError("no")])


def test_a_stream_shows_what_was_not_taken_back_when_it_is_read() -> None:
    def body(s: Any) -> None:
        s += "Q"
        mark = s.mark()
        s += gen("x")
        s.rewind(mark)
        s += gen("x")

    state = run(body, {"x": ["one", "two"]})
    assert "".join(state.text_iter()) == "Qtwo"
    assert list(state.text_iter("x")) == ["one", "two"]


def test_nothing_is_waited_for() -> None:
    backend = HandBackend()

    def body(s: Any) -> None:
        mark = s.mark()
        s += gen("x")
        s.rewind(mark)
        s += gen("y")

    running = Background(lambda: function(body).run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: len(program.gens()) == 2)
    assert [type(op) for op in program.ops].count(RewindOp) == 1
    for op in program.gens():
        program.done(op, op.name or "")
    program.done_others()
    assert running.result().text() == "y"
    assert not any(isinstance(op, RefuseOp) for op in program.ops)


def test_async_bodies_go_back_without_waiting() -> None:
    async def body(s: Any) -> str:
        mark = s.mark()
        s += gen("x")
        value = await s.get("x")
        s.rewind(mark)
        s += "again " + gen("x")
        return value + await s.get("x")

    assert run(body, {"x": ["one", "two"]}).ret_value == "onetwo"


def test_stretches_within_each_other_are_one() -> None:
    rewound = Rewound()
    rewound.add(3, 5)
    rewound.add(1, 7)
    assert [place for place in range(9) if rewound.has(place, 100)] == [1, 2, 3, 4, 5, 6]
    assert not rewound.has(3, 6)
