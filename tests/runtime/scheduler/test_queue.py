from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.intake import Intake
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req
from tests.support.scheduler_harness import VISIBLE, Harness, config, greedy


def req(rid: str, order: tuple[int, bool, int], **values: object) -> Req:
    add = AddReq(rid, (2, 3), greedy(), **values)  # type: ignore[arg-type]
    return Intake(config(), Harness().kv, VISIBLE).open(add, order)


def test_the_queue_is_in_order_of_arrival_and_a_retracted_request_comes_back_to_its_place() -> None:
    queue = WaitingQueue(ageing_slack=3)
    reqs = [req("a", (1, True, 1)), req("b", (1, True, 2)), req("c", (1, False, 3)), req("d", (2, True, 4))]
    for one in reqs:
        queue.add(one)
    assert [r.rid for r in queue] == ["c", "a", "b", "d"]
    queue.admitted(reqs[0])
    assert [r.rid for r in queue.window(2)] == ["c", "b"]
    queue.add(reqs[0])
    assert [r.rid for r in queue] == ["c", "a", "b", "d"]


def test_the_deadline_counts_those_ahead_and_the_slack_and_stays() -> None:
    queue = WaitingQueue(ageing_slack=3)
    first, second = req("a", (1, True, 1)), req("b", (1, True, 2))
    queue.add(first)
    queue.add(second)
    assert (first.deadline, second.deadline) == (4, 5)
    queue.admitted(first)
    queue.add(first)
    assert first.deadline == 4


def test_a_request_without_its_grammar_is_not_in_the_queue() -> None:
    queue = WaitingQueue(ageing_slack=0)
    late = req("a", (1, True, 1), waits_for_grammar=True)
    queue.add(late)
    assert (len(queue), queue.waiting_for_grammar) == (0, (late,))
    late.waits_for_grammar = False
    queue.add(late)
    assert (len(queue), queue.waiting_for_grammar) == (1, ())


def test_removing_a_stranger_is_an_internal_fault() -> None:
    queue = WaitingQueue(ageing_slack=0)
    queue.add(req("a", (1, True, 1)))
    with pytest.raises(AssertionError, match="'b' is not in the waiting queue"):
        queue.remove(req("b", (1, True, 1)))
