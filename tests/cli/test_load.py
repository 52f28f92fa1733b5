"""The arithmetic of a load test."""

from __future__ import annotations

from sglang_lite.cli.load import Measured, percentile, summary


def test_numbers_of_a_run() -> None:
    """By hand: two good requests and one that failed; a piece of two tokens counts as two."""
    measured = [
        Measured(0.0, 2.0, [1.0, 1.5, 2.0], prompt_tokens=10, completion_tokens=3, cached_tokens=4),
        Measured(1.0, 4.0, [3.0, 4.0], prompt_tokens=10, completion_tokens=4),
        Measured(0.5, 0.6, [], error="HTTP 503"),
    ]
    result = summary(measured)
    assert result["errors"] == {"HTTP 503": 1}
    assert result["wall_s"] == 4.0
    assert result["requests_per_s"] == 0.5
    assert result["output_tokens_per_s"] == 7 / 4
    assert result["ttft_ms"] == {"p50": 1000.0, "p95": 2000.0, "p99": 2000.0}
    assert result["inter_token_ms"] == {"p50": 500.0, "p95": 500.0, "p99": 500.0}
    assert result["end_to_end_ms"]["p50"] == 2000.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile(list(range(1, 101)), 99) == 99
