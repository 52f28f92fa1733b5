"""Joins that children race for, against a port that the test answers by hand; a step ends with a sweep."""

from __future__ import annotations

import pytest

from sglang_lite.errors import CancelledError, ExecutionError, KvOutOfMemoryError
from sglang_lite.request_tree import (
    AcceptOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    OpDone,
    OpFailed,
    RefOp,
    RewindOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.scheduler.messages import AbortReq, EndLease
from tests.runtime.executor.test_program import PARAMS, Bench
from tests.runtime.executor.test_random_programs import StepPort


def racing(count: int, *, first: int | None = None, vote: str | None = None) -> Bench:
    """Children 1 to `count` with a gen each (ids 11 ...), their join (20), and a gen of the parent behind it (21)."""
    bench = Bench()
    children = tuple(range(1, count + 1))
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, children))
    bench.append(*(GenOp(10 + child, child, "x", PARAMS) for child in children))
    bench.append(JoinOp(20, 0, children, first=first, vote=vote), GenOp(21, 0, "y", PARAMS))
    bench.executor.sweep()
    return bench


def answer(bench: Bench, **texts: str) -> None:
    """One step in which these requests end, in this order."""
    for rid, text in texts.items():
        bench.port.answer(rid, text)
    bench.executor.sweep()


def aborted(bench: Bench) -> list[str]:
    return [message.rid for message in bench.port.messages if isinstance(message, AbortReq)]


def test_the_first_end_wins_and_the_others_are_aborted() -> None:
    bench = racing(3, first=1)
    answer(bench, r1="second")
    assert bench.done(20).meta == {"winners": [1]}
    assert aborted(bench) == ["r0", "r2"]
    assert isinstance(bench.failed(11), CancelledError)
    assert bench.done(12).value == "second"
    assert bench.prompt("r3") == b"Q"


def test_nothing_is_decided_before_the_step_ends_and_then_by_index() -> None:
    """Outputs of a step come in the order of its batch, which says nothing."""
    bench = racing(3, first=2)
    bench.port.answer("r2", "c")
    bench.port.answer("r1", "b")
    assert not aborted(bench)
    bench.port.answer("r0", "a")
    bench.executor.sweep()
    assert bench.done(20).meta == {"winners": [0, 1]}
    assert bench.done(13).value == "c"


def test_winners_come_in_the_order_of_their_steps() -> None:
    bench = racing(3, first=2)
    answer(bench, r2="c")
    answer(bench, r0="a")
    assert bench.done(20).meta == {"winners": [2, 0]}
    assert aborted(bench) == ["r1"]


def test_ends_from_before_the_join_count_in_the_order_of_their_steps() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, "x", PARAMS), GenOp(4, 2, "x", PARAMS))
    answer(bench, r1="b")
    answer(bench, r0="a")
    bench.append(JoinOp(5, 0, (1, 2), first=2))
    bench.executor.sweep()
    assert bench.done(5).meta == {"winners": [1, 0]}


def test_a_child_wins_with_all_its_ops_done_and_those_below_it() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, "x", PARAMS), GenOp(4, 1, "z", PARAMS))
    bench.append(ForkOp(5, 2, (3,)), GenOp(6, 3, "x", PARAMS), JoinOp(7, 2, (3,)), JoinOp(8, 0, (1, 2), first=1))
    answer(bench, r0="a")
    assert not [e for e in bench.events if e.op == 8]
    answer(bench, r1="b")
    assert bench.done(8).meta == {"winners": [1]}
    assert aborted(bench) == ["r2"]


def test_a_failed_child_is_no_winner_and_harms_no_other() -> None:
    bench = racing(3, first=1)
    bench.port.fail("r0", KvOutOfMemoryError("full"))
    bench.executor.sweep()
    answer(bench, r2="c")
    assert bench.done(20).meta == {"winners": [2]}
    assert isinstance(bench.failed(11), KvOutOfMemoryError)


def test_all_that_fail_make_the_join_fail_and_the_parent_with_it() -> None:
    bench = racing(2, first=1)
    bench.port.fail("r0", KvOutOfMemoryError("full"))
    bench.port.fail("r1", KvOutOfMemoryError("also full"))
    bench.executor.sweep()
    error = bench.failed(20)
    assert isinstance(error, ExecutionError)
    assert "state 0 failed with KvOutOfMemoryError: full" in str(error)
    assert bench.failed(21) is error


def test_a_join_that_cannot_be_won_any_more_stops_the_rest() -> None:
    bench = racing(3, first=3)
    bench.port.fail("r0", KvOutOfMemoryError("full"))
    bench.executor.sweep()
    assert isinstance(bench.failed(20), ExecutionError)
    assert aborted(bench) == ["r1", "r2"]


def test_a_vote_ends_early_and_tells_what_won() -> None:
    bench = racing(5, vote="x")
    answer(bench, r3="yes", r1="no")
    answer(bench, r0="yes", r4="yes")
    done = bench.done(20)
    assert (done.value, done.text) == ("yes", "")
    assert done.meta == {"winners": [3, 0, 4], "votes": {"no": 1, "yes": 3}}
    assert aborted(bench) == ["r2"]


def test_a_select_votes_and_a_reference_takes_what_won() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1,)), SelectOp(3, 1, "x", ("a", "b")), JoinOp(4, 0, (1,), vote="x"))
    bench.append(RefOp(5, 0, 4), GenOp(6, 0, "y", PARAMS))
    bench.port.score("r0", ((-2.0,), (-1.0,)))
    bench.executor.sweep()
    assert bench.done(4).value == "b"
    assert bench.prompt("r1") == b"Qb"


def test_a_child_that_waits_for_its_program_has_not_ended() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, "x", PARAMS, hold=True), GenOp(4, 2, "x", PARAMS))
    bench.append(JoinOp(5, 0, (1, 2), first=1))
    answer(bench, r0="a")
    assert not [e for e in bench.events if e.op == 5]
    bench.append(AcceptOp(6, 1, 3))
    bench.executor.sweep()
    assert bench.done(5).meta == {"winners": [0]}


def test_a_branch_that_needs_a_loser_fails_with_it() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1, 2, 3)), GenOp(3, 1, "x", PARAMS), GenOp(4, 2, "x", PARAMS))
    bench.append(RefOp(5, 3, 4), JoinOp(6, 0, (1, 2), first=1))
    answer(bench, r0="a")
    assert bench.failed(5) is bench.failed(4)


def test_what_a_rewind_took_back_does_not_count_against_a_child() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1,)), MarkOp(3, 1), ForkOp(4, 1, (2,)), GenOp(5, 2, "x", PARAMS))
    bench.append(RewindOp(6, 1, 3), GenOp(7, 1, "x", PARAMS), JoinOp(8, 0, (1,), first=1))
    assert isinstance(bench.failed(5), CancelledError)
    answer(bench, r1="a")
    assert bench.done(8).meta == {"winners": [0]}


def test_a_cancelled_race_stops_all() -> None:
    bench = racing(2, first=1)
    bench.executor.cancel("p", None)
    assert aborted(bench) == ["r0", "r1"]
    assert isinstance(bench.failed(20), CancelledError)
    bench.executor.close("p")
    assert bench.executor.num_programs == 0


def test_losers_give_up_their_leases() -> None:
    bench = racing(2, first=1)
    answer(bench, r0="a")
    assert {m.lease for m in bench.port.messages if isinstance(m, EndLease)} >= {"p/1", "p/2"}


@pytest.mark.parametrize("ends", ["first", "vote", "rewind", "cancel", "failure"])
def test_the_kv_of_losers_is_free_within_two_steps(ends: str) -> None:
    """On the real scheduler and memory: whatever takes work from branches, two steps later nothing of it runs or is held."""
    port = StepPort(pool_pages=40)
    events: list[Event] = []
    port.executor.open("p", events.append, 1)
    short, long = SamplingParams(max_new_tokens=3, temperature=0), SamplingParams(max_new_tokens=60, temperature=0)
    lengths = [short, long, long] if ends != "vote" else [short, short, short, long, long]
    children = tuple(range(1, len(lengths) + 1))
    port.executor.append("p", [TextOp(1, 0, "Question"), MarkOp(2, 0), ForkOp(3, 0, children)])
    port.executor.append("p", [GenOp(10 + c, c, "x", params) for c, params in zip(children, lengths, strict=True)])
    if ends in ("first", "vote"):
        race = JoinOp(30, 0, children, first=1) if ends == "first" else JoinOp(30, 0, children, vote="x")
        port.executor.append("p", [race])
    elif ends == "failure":
        port.executor.append("p", [JoinOp(30, 0, children, first=3)])
    while not any(event.op == 11 for event in events):
        port.step()
    if ends == "rewind":
        port.executor.append("p", [RewindOp(30, 0, 2)])
    elif ends == "cancel":
        port.executor.cancel("p", [2, 3])
    elif ends == "failure":
        port.executor.cancel("p", [2])
    for _ in range(2):
        port.step()
    assert not port.scheduler.has_work
    held = port.kv.statistics()
    assert held.private_pages == held.protected_pages == 0
    ended = {event.op for event in events if isinstance(event, OpDone | OpFailed)}
    assert ended >= {10 + child for child in children}
