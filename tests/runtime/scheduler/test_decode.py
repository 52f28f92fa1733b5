from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.req import ReqState
from tests.support.scheduler_harness import Harness, config, greedy


def test_a_token_within_the_last_page_takes_no_page_and_evicts_nothing() -> None:
    harness = Harness(num_pages=9, page_size=16)
    harness.drain(AddReq("cached", (9,) * 40, greedy(1)))
    harness.step(AddReq("r", (2, 3), greedy(10)))
    before = harness.kv.statistics()
    for _ in range(6):
        harness.step()
    after = harness.kv.statistics()
    assert (after.free_pages, after.evicted_pages) == (before.free_pages, before.evicted_pages)


def test_cached_prefixes_go_before_anybody_is_retracted() -> None:
    harness = Harness(num_pages=9, page_size=4)
    harness.drain(AddReq("cached", (9,) * 24, greedy(1)))
    harness.drain(AddReq("r", (2, 3), greedy(28)))
    harness.check_idle()
    assert harness.scheduler.statistics().retractions == 0
    assert harness.kv.statistics().evicted_pages > 0


def test_no_more_are_retracted_than_needed() -> None:
    """Three requests need a page each at the same time, two are free: one gives way and lends the third."""
    harness = Harness(config(schedule_conservativeness=0.01), num_pages=9, page_size=4)
    harness.step(*[AddReq(f"r{i}", (2 + i, 3, 4), greedy(6)) for i in range(3)])
    steps = harness.drain()
    harness.check_idle()
    assert len(steps) == 3
    assert harness.scheduler.statistics().retractions <= 1


def test_the_ratio_falls_with_decode_steps_and_jumps_at_a_retract() -> None:
    harness = Harness()
    harness.step(AddReq("a", (2, 3), greedy(40)), AddReq("b", (2, 4), greedy(40)))
    first = harness.scheduler.statistics().new_token_ratio
    for _ in range(5):
        harness.step()
    assert harness.scheduler.statistics().new_token_ratio < first
    low = harness.scheduler.statistics().new_token_ratio
    assert harness.scheduler.retract("a")
    assert harness.scheduler.statistics().new_token_ratio != low
    harness.drain()
    harness.step()
    assert harness.scheduler.statistics().new_token_ratio == first


STEADY = {"ignore_eos": False, "min_new_tokens": 50}
"""No end token comes, but the reserve counts on one."""


def test_who_has_the_least_output_gives_way_at_once() -> None:
    """The one that needs a page goes on; the other, which needs none, is retracted."""
    harness = Harness(config(schedule_conservativeness=0.01, schedule_policy="fcfs"), num_pages=9, page_size=4)
    harness.step(AddReq("old", (2, 3, 4), greedy(40, **STEADY)))
    harness.step()
    harness.step(AddReq("young", (5, 6, 7), greedy(16, **STEADY)))
    while harness.scheduler.is_known("young") and harness.scheduler.state_of("young") is not ReqState.WAITING:
        harness.step()
    assert [rid for rid, _, _ in harness.rows()] == ["old"]
    harness.drain()
    assert harness.finals["young"].usage.retractions >= 1  # type: ignore[union-attr]


def test_a_request_with_a_row_in_the_step_is_not_the_victim() -> None:
    """A newcomer locks the prefix that could have been evicted; the victim is one of those that decode."""
    cfg = config(batching="mixed", schedule_conservativeness=0.01)
    harness = Harness(cfg, num_pages=7, page_size=4)
    harness.drain(AddReq("cached", (9,) * 12, greedy(0)))
    harness.step(*[AddReq(f"r{i}", (2 + i, 3, 4), greedy(6, **STEADY)) for i in range(2)])
    harness.step()
    harness.step(AddReq("new", ((9,) * 12 + (8,)), greedy(1)))
    assert [rid for rid, _, _ in harness.rows()] == ["new", "r0"]
    harness.drain()
    harness.check_idle()


def test_a_newcomer_does_not_take_the_pages_that_decode_rows_of_the_step_need() -> None:
    cfg = config(batching="mixed", schedule_conservativeness=0.01)
    harness = Harness(cfg, num_pages=6, page_size=4)
    harness.step(*[AddReq(f"r{i}", (2 + i, 3, 4), greedy(4, **STEADY)) for i in range(2)])
    harness.step()
    harness.step(AddReq("new", (9, 9, 9, 9, 9), greedy(1)))
    assert [rid for rid, _, _ in harness.rows()] == ["r0", "r1"]
    harness.drain()
    harness.check_idle()
    assert harness.scheduler.statistics().retractions == 0


@pytest.mark.parametrize("scored", [False, True])
def test_neither_a_chunk_nor_an_edge_takes_the_pages_that_decode_rows_of_the_step_need(scored: bool) -> None:
    """Over all sizes of the pool one of them takes the last pages; those that decode are never the ones to give way."""
    cfg = config(batching="mixed", schedule_conservativeness=0.01, chunked_prefill_size=8, schedule_policy="fcfs")
    base = tuple(2 + i % 7 for i in range(40))
    choices = (base[4:32], base[5:31]) if scored else None
    for num_pages in range(12, 22):
        harness = Harness(cfg, num_pages=num_pages, page_size=4)
        harness.step(*[AddReq(f"r{i}", (2 + i, 3, 4), greedy(9, **STEADY)) for i in range(3)])
        harness.drain(AddReq("long", base[: 4 if scored else 24], greedy(1), choices=choices))
        harness.check_idle()
        assert all(harness.finals[f"r{i}"].usage.retractions == 0 for i in range(3)), num_pages  # type: ignore[union-attr]


def test_a_retract_of_the_one_that_was_short_makes_room_for_who_stays() -> None:
    """Everything planned is retracted in planning, so the step is planned anew; the scoring one does not fail."""
    cfg = config(enable_priority_scheduling=True, schedule_conservativeness=0.01)
    for num_pages in range(6, 12):
        harness = Harness(cfg, num_pages=num_pages, page_size=4)
        harness.step(AddReq("low", (2, 3, 4), greedy(12, **STEADY)))
        harness.step()
        harness.drain(AddReq("high", (9,) * 9, greedy(), choices=((2, 10, 3, 8), (10, 7, 10)), priority=1))
        harness.check_idle()
        assert all(final.error is None for final in harness.finals.values())


@pytest.mark.parametrize(
    ("num_pages", "steps", "low"), [(6, 1, (2, 3, 4)), (7, 2, (2, 3, 4)), (8, 3, (2, 3, 4, 5, 6, 7))]
)
def test_who_waits_to_score_does_not_end_for_room_that_planning_has_just_made(
    num_pages: int, steps: int, low: tuple[int, ...]
) -> None:
    """Its edges find no page, and the one that decodes is retracted for want of one too: there is room now."""
    cfg = config(enable_priority_scheduling=True, schedule_conservativeness=0.01)
    harness = Harness(cfg, num_pages=num_pages, page_size=4)
    harness.step(AddReq("low", low, greedy(12, **STEADY)))
    for _ in range(steps):
        harness.step()
    harness.drain(AddReq("high", (9,) * 11, greedy(), choices=((10, 11), (3, 10, 11)), priority=1))
    harness.check_idle()
    assert harness.finals["high"].reason.kind == "stop"  # type: ignore[union-attr]
    assert harness.scheduler.statistics().retractions > 0
