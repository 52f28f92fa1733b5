from __future__ import annotations

from sglang_lite.cli.summary import summary_line
from sglang_lite.lang.summary import UsageTotals


def test_the_summary_says_what_was_computed_reused_and_forced() -> None:
    totals = UsageTotals(requests=2, prompt_tokens=100, cached_tokens=75, completion_tokens=9, forced_tokens=3)
    assert summary_line(totals, 1.26) == (
        "2 requests; prompt tokens: 25 computed, 75 reused (hit rate 75%); output tokens: 9, 3 forced; 1.3 s"
    )
