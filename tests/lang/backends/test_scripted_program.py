"""Held gens, marks, races and counts on the scripted backend, op by op."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ExecutionError
from sglang_lite.lang.backends.script import ScriptError
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import (
    AcceptOp,
    CountOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    RefOp,
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from tests.lang.support import TIMEOUT

PLAIN = SamplingParams()


class Run:
    """A program on a backend, and the events that it gave."""

    def __init__(self, replies: Any, *, latency_s: float = 0.0) -> None:
        self.backend = ScriptedBackend(replies, latency_s=latency_s)
        self.events: list[Event] = []
        self.program = self.backend.open_program(self.events.append)

    def append(self, *ops: Op) -> None:
        self.program.append(ops)
        self.settle()

    def settle(self) -> None:
        """Wait until the backend's thread has done what it was given."""
        done = threading.Event()
        self.backend.do(done.set)
        assert done.wait(TIMEOUT)

    def end(self, op: int) -> Any:
        ends = [e for e in self.events if isinstance(e, OpDone | OpFailed) and e.op == op]
        assert len(ends) <= 1
        return ends[0] if ends else None

    def held(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, OpHeld)]

    def prompts(self) -> list[str]:
        return [call.prompt for call in self.backend.calls]


def test_a_held_gen_waits_and_its_answer_ends_it() -> None:
    run = Run({"x": ["one", "two", "three"], "y": "end"})
    run.append(
        TextOp(0, 0, "Q"), GenOp(1, 0, "x", PLAIN, stream=True, hold=True), TextOp(2, 0, "!"), GenOp(3, 0, "y", PLAIN)
    )
    run.append(RefOp(4, 0, 1))
    assert (run.held(), run.end(1), run.end(2)) == (["one"], None, None)
    run.append(RetryOp(5, 0, 1, text=" no "))
    run.append(RetryOp(6, 0, 1, text=" why ", keep=True, params=SamplingParams(max_new_tokens=9)))
    assert run.held() == ["one", "two", "three"]
    assert run.backend.calls[2].params == SamplingParams(max_new_tokens=9)
    run.append(AcceptOp(7, 0, 1))
    done = run.end(1)
    assert (done.text, done.value, done.meta["attempts"]) == (" no two why three", "three", 3)
    assert run.prompts() == ["Q", "Q no ", "Q no two why ", "Q no two why three!"]
    assert run.end(4).text == "three"
    assert not any(isinstance(event, OpDelta) for event in run.events)


def test_a_refused_gen_fails_with_all_behind_it() -> None:
    run = Run({"x": "one"})
    run.append(GenOp(1, 0, "x", PLAIN, hold=True), TextOp(2, 0, "!"), RefuseOp(3, 0, 1, "none was good"))
    assert isinstance(run.end(1).error, ExecutionError)
    assert str(run.end(2).error) == "none was good"


def test_an_attempt_without_a_reply_fails_the_gen() -> None:
    run = Run({"x": ["one"]})
    run.append(GenOp(1, 0, "x", PLAIN, hold=True), RetryOp(2, 0, 1))
    assert isinstance(run.end(1).error, ScriptError)


@pytest.mark.parametrize("answer", [AcceptOp(9, 0, 1), RetryOp(9, 0, 1), RefuseOp(9, 0, 1, "no")])
def test_an_answer_that_nothing_waits_for_fails_alone(answer: AcceptOp) -> None:
    run = Run({"x": "one"})
    run.append(GenOp(1, 0, "x", PLAIN, hold=True), AcceptOp(2, 0, 1), answer)
    assert isinstance(run.end(9).error, CancelledError)
    assert run.end(1).value == "one"


def test_cancelling_gives_up_what_is_held() -> None:
    run = Run({"x": "one"})
    run.append(GenOp(1, 0, "x", PLAIN, hold=True), TextOp(2, 0, "!"))
    run.program.cancel()
    run.settle()
    assert isinstance(run.end(1).error, CancelledError)
    assert isinstance(run.end(2).error, CancelledError)


def test_a_rewind_restores_text_and_role_and_cancels_live_forks() -> None:
    run = Run({"x": ["one", "two", "three"]}, latency_s=0.0)
    run.append(RoleBeginOp(0, 0, "user"), MarkOp(1, 0), TextOp(2, 0, "a"), RoleEndOp(3, 0), GenOp(4, 0, "x", PLAIN))
    run.append(ForkOp(5, 0, (1, 2)), GenOp(6, 1, "x", PLAIN, hold=True), JoinOp(7, 0, (2,)), RewindOp(8, 0, 1))
    run.append(TextOp(9, 0, "b"), RoleEndOp(10, 0), GenOp(11, 0, "x", PLAIN))
    assert isinstance(run.end(6).error, CancelledError)
    assert run.prompts()[-1] == "USER:b\n"
    run.append(TextOp(12, 1, "more"))
    assert isinstance(run.end(12).error, CancelledError)


def test_a_race_waits_for_what_has_not_ended_and_drops_it() -> None:
    run = Run({"x": ["a", "b", "c"]})
    run.append(ForkOp(0, 0, (1, 2, 3)), GenOp(1, 1, "x", PLAIN, hold=True), GenOp(2, 2, "x", PLAIN, hold=True))
    run.append(SelectOp(3, 3, "x", ("c",), "client"), JoinOp(4, 0, (1, 2, 3), first=2), TextOp(5, 0, "!"))
    assert run.end(4) is None
    run.append(AcceptOp(6, 2, 2))
    assert run.end(4) is None
    run.append(AcceptOp(7, 1, 1))
    assert run.end(4).meta == {"winners": [1, 0]}
    assert isinstance(run.end(3).error, CancelledError)
    assert run.end(5).text == "!"


def test_a_vote_is_decided_before_all_have_ended() -> None:
    run = Run({"x": ["no", "yes", "yes", "yes", "late"]})
    run.append(ForkOp(0, 0, (1, 2, 3, 4, 5)), *(GenOp(i, i, "x", PLAIN) for i in range(1, 5)))
    run.append(GenOp(5, 5, "x", PLAIN, hold=True), JoinOp(6, 0, (1, 2, 3, 4, 5), vote="x"), RefOp(7, 0, 6))
    assert run.end(6).value == "yes"
    assert run.end(6).meta == {"winners": [1, 2, 3], "votes": {"no": 1, "yes": 3}}
    assert isinstance(run.end(5).error, CancelledError)
    assert run.end(7).text == "yes"


def test_losers_do_not_wait_for_their_latency() -> None:
    """The clock is the test's: no reply is ever due, and the join ends all the same."""
    run = Run(lambda call: call.name, latency_s=3600)
    run.append(ForkOp(0, 0, (1, 2)), GenOp(1, 1, "slow", PLAIN), TextOp(2, 2, "at once"), JoinOp(3, 0, (1, 2), first=1))
    assert run.end(3).meta == {"winners": [1]}
    assert isinstance(run.end(1).error, CancelledError)


def test_a_race_that_all_lose_names_the_first_cause() -> None:
    run = Run({"x": [RuntimeError("one"), RuntimeError("two")]})
    run.append(ForkOp(0, 0, (1, 2)), GenOp(1, 1, "x", PLAIN), GenOp(2, 2, "x", PLAIN))
    run.append(JoinOp(3, 0, (1, 2), first=1), TextOp(4, 0, "!"))
    assert "RuntimeError: one" in str(run.end(3).error)
    assert run.end(4).error is run.end(3).error


def test_a_count_is_in_words() -> None:
    run = Run({})
    run.append(TextOp(0, 0, "one two"), CountOp(1, 0), TextOp(2, 0, " three"))
    assert run.end(1).meta == {"num_tokens": 2, "context_len": None}


def test_a_closed_program_with_a_held_gen_is_not_forgotten() -> None:
    run = Run({"x": "one"})
    run.append(GenOp(1, 0, "x", PLAIN, hold=True))
    run.program.close()
    run.settle()
    run.backend.shutdown()
    thread = run.backend._thread
    assert thread is not None
    thread.join(TIMEOUT)
    assert run.end(1) is not None
