"""The line at the end of a command: what was computed, reused and forced, and how long it took."""

from __future__ import annotations

from sglang_lite.lang.summary import UsageTotals


def summary_line(totals: UsageTotals, seconds: float) -> str:
    """One line for people, from the counts of all gens and selects of a command."""
    return (
        f"{totals.requests} requests; prompt tokens: {totals.computed_tokens} computed, {totals.cached_tokens} reused "
        f"(hit rate {totals.hit_rate:.0%}); output tokens: {totals.completion_tokens}, {totals.forced_tokens} forced; "
        f"{seconds:.1f} s"
    )
