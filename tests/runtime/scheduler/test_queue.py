from __future__ import annotations

import pytest

from sglang_lite.errors import QueueFullError
from sglang_lite.runtime.scheduler.intake import Intake
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.queue import QueueStatistics, WaitingQueue
from sglang_lite.runtime.scheduler.req import Req
from tests.support.scheduler_harness import VISIBLE, Harness, config, greedy


def req(rid: str, order: tuple[int, bool, int], **values: object) -> Req:
    """Two prompt tokens and six to come: it may cost eight."""
    add = AddReq(rid, (2, 3), greedy(), **values)  # type: ignore[arg-type]
    return Intake(config(enable_priority_scheduling="priority" in values), Harness().kv, VISIBLE).open(add, order)


def test_the_queue_is_in_order_of_arrival_and_a_retracted_request_comes_back_to_its_place() -> None:
    queue = WaitingQueue(ageing_tokens=3)
    reqs = [req("a", (1, True, 1)), req("b", (1, True, 2)), req("c", (1, False, 3)), req("d", (2, True, 4))]
    for one in reqs:
        queue.add(one)
    assert [r.rid for r in queue] == ["c", "a", "b", "d"]
    queue.admitted(reqs[0])
    assert [r.rid for r in queue.window(2)] == ["c", "b"]
    queue.add(reqs[0])
    assert [r.rid for r in queue] == ["c", "a", "b", "d"]


def test_the_deadline_is_the_clock_the_tokens_ahead_and_the_slack_and_stays() -> None:
    queue = WaitingQueue(ageing_tokens=3)
    queue.clock = 100
    first, second, third = req("a", (1, True, 1)), req("b", (1, True, 2)), req("c", (2, True, 3))
    queue.add(first)
    queue.add(second)
    assert (first.deadline, second.deadline) == (104, 112)
    queue.admitted(first)
    queue.clock += 5
    queue.add(third)
    assert third.deadline == 117
    queue.add(first)
    assert first.deadline == 104
    assert queue.statistics() == QueueStatistics(3, 0, 1, 1, 105)


def test_ranks_come_in_order_and_the_oldest_of_all_is_always_in_the_window() -> None:
    queue = WaitingQueue(ageing_tokens=3)
    places = {"low": 1, "none": None, "high": 9, "high too": 9}
    reqs = {rid: req(rid, (1, True, i), priority=priority) for i, (rid, priority) in enumerate(places.items())}
    for one in reqs.values():
        queue.add(one)
    assert [r.rid for r in queue] == ["high", "high too", "low", "none"]
    assert [r.rid for r in queue.window(1)] == ["high", "low"]
    assert [r.rid for r in queue.window(3)] == ["high", "high too", "low"]
    assert (queue.last_below(reqs["low"].rank), queue.last_below(reqs["none"].rank)) == (reqs["none"], None)
    queue.remove(reqs["high"])
    assert [r.rid for r in queue] == ["high too", "low", "none"]
    assert len(queue) == queue.num_queued == 3


def test_a_request_without_its_grammar_is_not_in_the_queue() -> None:
    queue = WaitingQueue(ageing_tokens=0)
    late = req("a", (1, True, 1), waits_for_grammar=True)
    queue.add(late)
    assert (len(queue), queue.waiting_for_grammar) == (0, (late,))
    late.waits_for_grammar = False
    queue.add(late)
    assert (len(queue), queue.waiting_for_grammar) == (1, ())


def test_removing_a_stranger_is_an_internal_fault() -> None:
    queue = WaitingQueue(ageing_tokens=0)
    queue.add(req("a", (1, True, 1)))
    with pytest.raises(AssertionError, match="'b' is not in the waiting queue"):
        queue.remove(req("b", (1, True, 1)))


def test_a_full_queue_refuses_the_newcomer_by_a_typed_error_and_serves_the_others() -> None:
    harness = Harness(config(max_queued_requests=2, max_running_requests=1))
    harness.step(AddReq("running", (2, 3), greedy(9)))
    harness.drain(*[AddReq(f"r{i}", (4, 5), greedy(2)) for i in range(3)])
    error = harness.finals["r2"].error
    assert isinstance(error, QueueFullError)
    assert "2 requests wait already, max_queued_requests=2; try again later" in str(error)
    assert all(harness.finals[rid].error is None for rid in ("running", "r0", "r1"))
    harness.check_idle()


def test_in_a_full_queue_a_higher_priority_takes_the_place_of_the_last_that_never_ran() -> None:
    cfg = config(max_queued_requests=2, max_running_requests=1, enable_priority_scheduling=True)
    harness = Harness(cfg)
    harness.step(AddReq("running", (2, 3), greedy(9), priority=0))
    harness.step(AddReq("low", (4, 5), greedy(2), priority=1), AddReq("lower", (4, 5), greedy(2)))
    harness.drain(AddReq("high", (4, 5), greedy(2), priority=5), AddReq("equal", (4, 5), greedy(2), priority=1))
    assert {rid for rid, final in harness.finals.items() if final.error is not None} == {"lower", "equal"}
    assert isinstance(harness.finals["lower"].error, QueueFullError)
    harness.check_idle()
