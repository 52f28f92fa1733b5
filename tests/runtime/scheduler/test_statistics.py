from __future__ import annotations

from sglang_lite.runtime.scheduler.messages import AddReq
from tests.support.scheduler_harness import Harness, config, greedy


def test_everything_comes_as_plain_values_with_the_hit_rate() -> None:
    harness = Harness(config(max_queued_requests=2))
    assert harness.scheduler.statistics().to_dict()["hit_rate"] == 0.0
    prompt = tuple(2 + i % 9 for i in range(30))
    harness.drain(*[AddReq(f"r{i}", prompt, greedy(2)) for i in range(4)])
    harness.drain(AddReq("again", prompt, greedy(2)))
    now = harness.scheduler.statistics().to_dict()
    assert (now["refused"], now["queue"]["admitted"], now["queue"]["waiting"], now["dropped_rows"]) == (2, 3, 0, 0)
    assert now["hit_rate"] == now["cached_tokens"] / (now["cached_tokens"] + now["computed_tokens"]) > 0.5
    assert now["kv"]["free_pages"] + now["kv"]["evictable_pages"] == now["kv"]["total_pages"]
    assert now["queue"]["clock"] == sum(row.extend_len for plan in harness.plans for row in plan.rows)
