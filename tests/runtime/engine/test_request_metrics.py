from __future__ import annotations

from sglang_lite.runtime.engine.request_metrics import Histogram, RequestMetrics
from sglang_lite.runtime.scheduler.messages import ReqOutput


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        histogram.add(value)
    assert histogram.to_dict() == {"bounds": [1, 2], "counts": [2, 2, 1], "sum": 8.0}


def test_tokens_of_one_step_share_its_time() -> None:
    metrics = RequestMetrics()
    metrics.came("a", 0.0)
    metrics.took(ReqOutput("a", new_ids=(1, 2)), 3.0)
    metrics.took(ReqOutput("a", new_ids=(3, 4, 5, 6)), 5.0)
    found = metrics.to_dict()["histograms"]
    assert found["time_to_first_token_seconds"]["sum"] == 3.0
    assert sum(found["inter_token_latency_seconds"]["counts"]) == 5
    assert found["inter_token_latency_seconds"]["sum"] == 2.0
