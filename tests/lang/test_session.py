"""A running program: when ops are sent, how it ends, is cancelled, interrupted, timed out."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, ProgramTimeoutError
from sglang_lite.lang import ChoicesDecision, ChoicesSamplingMethod, ProgramState, RunOptions, function, gen, select
from sglang_lite.lang import session as session_module
from sglang_lite.lang.deadlines import Deadline
from sglang_lite.request_tree import DecideOp, EventSink, JoinOp, Op, OpDone, SelectOp, TextOp
from tests.lang.support import Background, HandBackend, HandProgram

SCORES: dict[str, Any] = {
    "normalized_prompt_logprobs": [-1.0, -2.0],
    "input_token_logprobs": [[[-1.0, 0, "a"]], [[-2.0, 1, "b"]]],
    "output_token_logprobs": [[], []],
}


class Last(ChoicesSamplingMethod):
    """The last choice, once the test lets it decide."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_decide = threading.Event()
        self._error = error

    def __call__(self, **scores: Any) -> ChoicesDecision:
        assert self.may_decide.wait(20)
        if self._error is not None:
            raise self._error
        return ChoicesDecision(scores["choices"][-1], {"by": "last"})


def start(body: Callable[[ProgramState], Any], backend: Any, **given: Any) -> Background:
    return Background(lambda: function(lambda s: body(s)).run(backend=backend, **given))


def test_after_the_first_wait_gens_go_out_at_once() -> None:
    backend = HandBackend()
    may_go_on = threading.Event()

    def body(s: ProgramState) -> None:
        s += "one" + gen("a")
        _ = s["a"]
        s += "two"
        s += "three" + gen("b")
        may_go_on.wait(20)

    background = start(body, backend)
    program = backend.wait_program()
    program.done(program.wait_gen(), "A")
    b = program.wait_gen(1)
    assert [len(batch) for batch in program.batches] == [2, 3]
    may_go_on.set()
    program.done_others()
    program.done(b, "B")
    assert background.result().text() == "oneAtwothreeB"


def test_a_streaming_program_sends_everything_at_once() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += "a"
        s += "b" + gen("x")

    state = f.run(backend=backend, stream=True)
    program = backend.wait_program()
    program.wait_gen()
    assert [len(batch) for batch in program.batches] == [1, 1, 1]
    state.cancel()


def test_a_program_is_closed_once_after_its_last_op() -> None:
    backend = HandBackend()
    background = start(lambda s: s.append("text"), backend)
    program = backend.wait_program()
    program.wait(lambda: program.num_closes == 1)
    program.done_others()
    assert background.result().text() == "text"
    assert (program.num_closes, program.cancels) == (1, [])


def test_ids_rise_in_the_order_of_appending() -> None:
    backend = HandBackend()

    def body(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(2)
        forks += "b"
        forks[1].fork(1)
        s += "c"

    background = start(body, backend)
    program = backend.wait_program()
    program.wait(lambda: len(program.ops) == 6)
    program.done_others()
    background.result()
    assert [(op.id, op.branch) for op in program.ops] == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 0)]


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_the_seed_reaches_the_backend(seed: int | None) -> None:
    backend = HandBackend()
    start(lambda s: None, backend, options=RunOptions(seed=seed)).result()
    assert backend.programs[0].seed == seed


def test_a_second_end_of_an_op_is_ignored_and_a_foreign_op_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    backend = HandBackend()
    background = start(lambda s: s.append("a" + gen("x")), backend)
    program = backend.wait_program()
    op = program.wait_gen()
    program.done_others()
    with caplog.at_level(logging.ERROR):
        program.sink(OpDone(99))
    assert "for an op that it does not have" in caplog.text
    program.delta(op, "v")
    program.done(op, "value")
    program.done(op, "other")
    program.fail(op, ExecutionError("late"))
    program.delta(op, "late")
    state = background.result()
    assert (state["x"], state.error()) == ("value", None)


def test_a_backend_that_refuses_ops_fails_them_and_the_body() -> None:
    class Refusing(HandProgram):
        def append(self, ops: Sequence[Op]) -> None:
            raise EngineStoppedError("stopped")

    class RefusingBackend(HandBackend):
        def open_program(self, sink: EventSink, *, seed: int | None = None) -> HandProgram:
            return Refusing(sink, seed)

    def reads(s: ProgramState) -> None:
        s += gen("x")
        _ = s["x"]

    for body in (reads, lambda s: s.append(gen("x"))):
        with pytest.raises(EngineStoppedError, match="stopped"):
            start(body, RefusingBackend()).result()


def test_events_may_come_while_ops_are_being_appended() -> None:
    """A backend that answers in the caller's thread; it is not told of the end before it has taken the last ops."""
    is_appending: list[bool] = []

    class Immediate(HandProgram):
        def append(self, ops: Sequence[Op]) -> None:
            super().append(ops)
            is_appending.append(True)
            for op in ops:
                self.done(op, "x")
            is_appending.pop()

        def close(self) -> None:
            super().close()
            closed_early.extend(is_appending)

    class ImmediateBackend(HandBackend):
        def open_program(self, sink: EventSink, *, seed: int | None = None) -> HandProgram:
            self.programs.append(Immediate(sink, seed))
            return self.programs[-1]

    backend = ImmediateBackend()
    closed_early: list[bool] = []

    def body(s: ProgramState) -> str:
        s += gen("a")
        value = s["a"]
        s += gen("b")
        s += "the rest, sent when the body ends"
        return value

    assert start(body, backend).result().ret_value == "x"
    assert (backend.programs[0].num_closes, closed_early) == (1, [])


# --- cancelling ---


def waits_for_a_program(thread: int) -> bool:
    frame = sys._current_frames()[thread]
    names: list[str] = []
    while frame is not None:
        names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return "Signal.wait_for" in names and names[0] == "_wait_for_lock"


def interrupt_when(is_true: Callable[[], Any]) -> None:
    """Press Ctrl-C on this (the main) thread once `is_true` has returned and the thread waits for the program."""
    main = threading.main_thread().ident
    assert main == threading.get_ident(), "Ctrl-C reaches the main thread only"

    def press() -> None:
        is_true()
        pause = threading.Event()
        while not waits_for_a_program(main):
            pause.wait(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    Background(press)


def test_ctrl_c_during_a_wait_cancels_and_is_raised() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")
        with s.user():
            _ = s["x"]

    interrupt_when(lambda: backend.wait_program().wait_gen())
    with pytest.raises(KeyboardInterrupt):
        f.run(backend=backend)
    program = backend.programs[0]
    assert (program.cancels, program.num_closes) == ([None], 1)
    program.fail_rest()


def test_ctrl_c_at_the_end_of_run_cancels_and_is_raised() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")

    def closed() -> None:
        program = backend.wait_program()
        program.wait(lambda: program.num_closes == 1)

    interrupt_when(closed)
    with pytest.raises(KeyboardInterrupt):
        f.run(backend=backend)
    assert backend.programs[0].cancels == [None]


def test_ctrl_c_while_reading_a_stream_cancels_the_program() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")
        _ = s["x"]

    state = f.run(backend=backend, stream=True)
    interrupt_when(lambda: backend.wait_program().wait_gen())
    with pytest.raises(KeyboardInterrupt):
        list(state.text_iter())
    assert backend.programs[0].cancels == [None]
    assert isinstance(state.error(), CancelledError)


def test_ctrl_c_in_a_nested_run_cancels_both() -> None:
    backend = HandBackend()

    @function
    def inner(s: ProgramState) -> None:
        s += gen("y")

    @function
    def outer(s: ProgramState) -> None:
        s += gen("x")
        s.branch.session.flush()
        inner()

    interrupt_when(lambda: backend.wait_program(1).wait_gen())
    with pytest.raises(KeyboardInterrupt):
        outer.run(backend=backend)
    assert [program.cancels for program in backend.programs] == [[None], [None]]


def test_cancelling_a_program_cancels_the_runs_inside_it() -> None:
    backend = HandBackend()
    met: list[BaseException] = []

    @function
    def inner(s: ProgramState) -> None:
        s += gen("y")

    @function
    def outer(s: ProgramState) -> None:
        try:
            inner()
        except CancelledError as error:
            met.append(error)
            raise

    state = outer.run(backend=backend, stream=True)
    backend.wait_program(1).wait_gen()
    state.cancel()
    assert isinstance(state.error(), CancelledError)
    assert len(met) == 1
    assert backend.programs[1].cancels == [None]


def test_a_cancelled_program_takes_nothing_more() -> None:
    backend = HandBackend()

    def body(s: ProgramState) -> None:
        s += gen("x")
        s.cancel()
        s.cancel()
        with pytest.raises(CancelledError, match="the program was cancelled"):
            s += "more"
        with pytest.raises(CancelledError):
            _ = s["x"]

    with pytest.raises(CancelledError):
        start(body, backend).result()
    assert backend.programs[0].ops == [], "what was not sent yet never is"


def test_cancelling_what_has_ended_does_nothing() -> None:
    backend = HandBackend()
    background = start(lambda s: s.append("a"), backend)
    program = backend.wait_program()
    program.wait(lambda: bool(program.ops))
    program.done_others()
    state = background.result()
    state.cancel()
    assert (state.error(), state.text(), program.cancels) == (None, "a", [])


def test_a_timeout_ends_a_run_that_waits() -> None:
    backend = HandBackend()

    def body(s: ProgramState) -> None:
        s += gen("x")
        _ = s["x"]

    with pytest.raises(TimeoutError, match=r"not done after timeout=0\.05 s") as caught:
        start(body, backend, options=RunOptions(timeout=0.05)).result()
    assert isinstance(caught.value, ProgramTimeoutError)
    assert backend.programs[0].cancels == [None]


def test_a_run_that_ends_in_time_has_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline is called off; one that strikes all the same, just then, changes nothing."""
    struck: list[Deadline] = []

    class HandClock:
        def set(self, seconds: float, action: Callable[[], None]) -> Deadline:
            return Deadline(seconds, 0, action)

        def call_off(self, deadline: Deadline) -> None:
            struck.append(deadline)

    monkeypatch.setattr(session_module, "shared_clock", HandClock())
    state = start(lambda s: None, HandBackend(), options=RunOptions(timeout=5)).result()
    (deadline,) = struck
    assert deadline.action is not None
    deadline.action()
    assert (deadline.at, state.error()) == (5, None)


# --- the decisions of a program's own choice methods ---


def scored_select(
    body: Callable[[ProgramState], Any], backend: HandBackend, **given: Any
) -> tuple[Background, Any, Any]:
    background = start(body, backend, **given)
    program = backend.wait_program()
    select_op = program.wait_gen()
    assert isinstance(select_op, SelectOp)
    assert select_op.method == "client"
    program.scored(select_op, SCORES)
    return background, program, select_op


def test_a_decision_is_sent_after_the_body_has_ended_and_before_the_close() -> None:
    backend, method = HandBackend(), Last()
    background, program, op = scored_select(lambda s: s.append(select("c", ["a", "b"], 0, method)), backend)
    assert program.num_closes == 0, "a decision is still to come"
    method.may_decide.set()
    program.wait(lambda: program.num_closes == 1)
    decision = program.ops[-1]
    assert decision == DecideOp(decision.id, 0, op.id, 1)
    program.done(decision)
    program.done(op, "b", prompt_tokens=3)
    state = background.result()
    assert (state["c"], state.get_meta_info("c")) == ("b", {"prompt_tokens": 3, "by": "last"})


def test_a_decision_may_come_after_the_join_of_its_branch() -> None:
    backend, method = HandBackend(), Last()

    def body(s: ProgramState) -> None:
        forks = s.fork(1)
        forks += select("c", ["a", "b"], 0, method)
        forks.join()

    background, program, op = scored_select(body, backend)
    method.may_decide.set()
    program.wait(lambda: isinstance(program.ops[-1], DecideOp))
    program.done(op, "b")
    program.done_others()
    assert background.result()["c"] == ["b"]


def test_a_method_that_raises_fails_its_select_and_what_follows_it() -> None:
    """The branch is given up here and at the backend; its sibling and its parent go on."""
    backend, method = HandBackend(), Last(ZeroDivisionError("in the method"))
    seen: list[Any] = []

    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks[0].append(select("c", ["a", "b"], 0, method) + gen("after"))
        forks[1].append(gen("d"))
        inner = forks[0].fork(1)
        seen.append(forks[0].error())
        inner += gen("late")
        seen.append(inner[0].error())
        grand = inner[0].fork(1)
        grand += "text"
        seen.append(grand[0].error())
        forks.join()
        seen.append(forks[1]["d"])

    background, program, op = scored_select(body, backend, options=RunOptions(on_error="state"))
    program.done_others()
    method.may_decide.set()
    program.wait(lambda: any(isinstance(one, JoinOp) for one in program.ops))
    program.wait(lambda: program.cancels == [(op.branch,)])
    assert not any(isinstance(one, TextOp) for one in program.ops), "nothing is sent to a branch that was given up"
    for one in program.gens():
        if one.name == "d":
            program.done(one, "D")
    program.fail_rest()
    state = background.result()
    assert [type(one) for one in seen[:3]] == [ZeroDivisionError] * 3
    assert seen[3] == "D"
    assert isinstance(state.error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="in the method"):
        _ = state["c"]


def test_a_decision_after_cancelling_is_dropped() -> None:
    backend, method = HandBackend(), Last()
    background, program, op = scored_select(lambda s: s.append(select("c", ["a", "b"], 0, method)), backend)
    program.fail(op, ExecutionError("the branch failed"))
    method.may_decide.set()
    with pytest.raises(ExecutionError, match="the branch failed"):
        background.result()
    program.wait(lambda: program.num_closes == 1)
    assert not any(isinstance(one, DecideOp) for one in program.ops)
