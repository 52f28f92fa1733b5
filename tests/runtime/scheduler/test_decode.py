from __future__ import annotations

from sglang_lite.runtime.scheduler.messages import AddReq
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
