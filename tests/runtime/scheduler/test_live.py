from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq
from tests.support.scheduler_harness import Harness, config, greedy

LONG = tuple(2 + i % 9 for i in range(30))


@pytest.mark.parametrize("place", ["chunked", "completed", "running", "scoring"])
def test_a_retract_frees_private_pages_at_once_and_the_stream_goes_on(place: str) -> None:
    harness = Harness(config(chunked_prefill_size=8), page_size=4)
    prompt = LONG if place == "chunked" else LONG[:6]
    choices = (LONG[:12], LONG[3:20]) if place == "scoring" else None
    harness.step(AddReq("r", prompt, greedy(9), choices=choices))
    for _ in range({"chunked": 1, "completed": 0, "running": 2, "scoring": 1}[place]):
        harness.step()
    assert harness.scheduler.retract("r")
    kv = harness.kv.statistics()
    assert (kv.private_pages, kv.protected_pages, kv.free_rows) == (0, 0, kv.total_rows)
    final = harness.drain()["r"]
    assert final.usage is not None
    assert final.usage.retractions == 1
    harness.check_idle()


def test_whole_pages_computed_before_a_retract_are_found_again() -> None:
    harness = Harness(config(chunked_prefill_size=8), page_size=4)
    harness.step(AddReq("r", LONG, greedy(2)))
    harness.step()
    harness.scheduler.retract("r")
    harness.step()
    assert harness.rows() == [("r", 16, 8)]
    usage = harness.drain()["r"].usage
    assert usage is not None
    assert (usage.cached_tokens, usage.computed_tokens) == (0, 30)


def test_an_aborted_request_leaves_only_what_was_shared() -> None:
    harness = Harness(page_size=4)
    harness.step(AddReq("r", LONG[:6], greedy(20)))
    for _ in range(6):
        harness.step()
    harness.scheduler.receive([AbortReq("r")])
    kv = harness.kv.statistics()
    assert (kv.private_pages, kv.protected_pages, kv.evictable_pages) == (0, 0, 1)


def test_a_request_is_told_how_many_cached_pages_were_given_up_for_it() -> None:
    harness = Harness(num_pages=13, page_size=4)
    harness.step(AddReq("old", LONG, greedy(2)))
    first = harness.drain()["old"].usage
    harness.step(AddReq("new", tuple(reversed(LONG)), greedy(2)))
    second = harness.drain()["new"].usage
    assert first is not None
    assert second is not None
    assert first.evicted_pages == 0
    assert second.evicted_pages == harness.kv.statistics().evicted_pages > 0


def test_the_first_row_of_a_request_is_announced_once() -> None:
    harness = Harness(config(chunked_prefill_size=8), page_size=4)
    harness.step(AddReq("r", LONG, greedy(2)))
    assert harness.scheduler.first_admitted == ["r"]
    harness.step()
    assert harness.scheduler.first_admitted == []
    harness.scheduler.retract("r")
    harness.step()
    assert harness.scheduler.first_admitted == []
