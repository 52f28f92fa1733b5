from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.messages import AddReq
from tests.support.scheduler_harness import Harness, config, greedy

LONG = tuple(2 + i % 9 for i in range(30))


def test_a_chunk_goes_first_and_others_use_what_it_leaves() -> None:
    harness = Harness(config(chunked_prefill_size=16, schedule_policy="fcfs"))
    harness.step(AddReq("long", LONG[:20], greedy(2)), AddReq("other", (9, 9, 9), greedy(2)))
    assert harness.rows() == [("long", 0, 16)]
    harness.step()
    assert harness.rows() == [("long", 16, 4), ("other", 0, 3)]


def test_at_most_one_request_is_cut() -> None:
    harness = Harness(config(chunked_prefill_size=8, schedule_policy="fcfs"))
    harness.step(*[AddReq(f"r{i}", (2 + i,) * 12, greedy(2)) for i in range(3)])
    parts: set[str] = set()
    while harness.scheduler.has_work:
        cut = [row.rid for row in harness.plans[-1].rows if row.sample is None]
        assert len(cut) <= 1
        parts.update(cut)
        harness.step()
    assert parts == {"r0", "r1", "r2"}
    harness.check_idle()


@pytest.mark.parametrize("batching", ["mixed", "decode-first"])
def test_prefill_goes_on_by_a_page_however_many_decode(batching: str) -> None:
    harness = Harness(config(chunked_prefill_size=4, batching=batching, max_running_requests=16))
    harness.drain(*[AddReq(f"r{i}", (2 + i,), greedy(40)) for i in range(8)], AddReq("long", LONG, greedy(3)))
    harness.check_idle()


def test_decode_rows_count_against_the_chunk() -> None:
    harness = Harness(config(chunked_prefill_size=16, batching="mixed"))
    harness.step(*[AddReq(f"r{i}", (2 + i,), greedy(40)) for i in range(4)])
    harness.step(AddReq("long", LONG, greedy(3)))
    assert harness.rows()[0] == ("long", 0, 12)
    assert len(harness.rows()) == 5


def test_the_whole_output_to_come_is_reserved_at_admission() -> None:
    """Two requests of which each fits, but not both: the second waits, nothing is retracted."""
    harness = Harness(config(schedule_conservativeness=10.0), num_pages=10, page_size=4)
    harness.drain(AddReq("a", (2, 3, 4), greedy(20)), AddReq("b", (5, 6, 7), greedy(20)))
    harness.check_idle()
    assert harness.scheduler.statistics().retractions == 0


def test_without_chunks_a_step_takes_whole_prompts_up_to_its_tokens() -> None:
    harness = Harness(config(chunked_prefill_size=None, max_prefill_tokens=12, schedule_policy="fcfs"))
    adds = [AddReq("long", LONG, greedy(2)), *[AddReq(f"s{i}", (2 + i,) * 3, greedy(2)) for i in range(4)]]
    harness.step(*adds)
    assert harness.rows() == [("long", 0, 30)]
    harness.step()
    assert [rid for rid, _, _ in harness.rows()] == ["s0", "s1"]


def test_the_rest_of_a_prompt_waits_for_pages_and_gets_them_before_anybody_new() -> None:
    harness = Harness(config(chunked_prefill_size=8, schedule_policy="fcfs"), num_pages=9, page_size=4)
    harness.step(AddReq("d", (9,), greedy(20)))
    harness.drain(AddReq("long", LONG[:28], greedy(2)), AddReq("new", (8, 8), greedy(2)))
    harness.check_idle()
    assert all(final.error is None for final in harness.finals.values())


def test_choices_that_wait_for_pages_get_them_before_anybody_new() -> None:
    """The next edge needs three pages, two are available: a newcomer that needs one waits all the same."""
    harness = Harness(config(schedule_policy="fcfs"), num_pages=7, page_size=4)
    harness.step(AddReq("d", (9,) * 9, greedy(3)))
    harness.step(AddReq("s", LONG[:4], greedy(), choices=(LONG[4:17],)))
    harness.step(AddReq("new", (8,), greedy(1)))
    assert [rid for rid, _, _ in harness.rows()] == ["d"]
    harness.drain()
    harness.check_idle()
    order = [row.rid for plan in harness.plans for row in plan.rows]
    assert order.index("new") > max(i for i, rid in enumerate(order) if rid == "s")
