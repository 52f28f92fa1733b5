"""Token counts over a stretch of time."""

from __future__ import annotations

import pytest

from sglang_lite.lang import ProgramState, ScriptedBackend, UsageTotals, count_usage, function, gen, select
from sglang_lite.lang.summary import record


@function
def program(s: ProgramState) -> None:
    s += "one two" + gen("x") + select("c", ["a", "b"])


def test_gens_and_selects_are_counted_inside_the_block_only() -> None:
    backend = ScriptedBackend({"x": " three four", "c": "a"})
    program.run(backend=backend)
    with count_usage() as totals:
        program.run(backend=backend)
        with count_usage() as inner:
            program.run_batch([(), ()], backend=backend)
    program.run(backend=backend)
    assert (totals.requests, inner.requests) == (6, 4)
    assert (totals.prompt_tokens, totals.completion_tokens) == (3 * (2 + 4), 3 * (2 + 1))


def test_reuse_is_a_share_of_the_prompt() -> None:
    with count_usage() as totals:
        record(
            {"prompt_tokens": 10, "cached_tokens": 6, "completion_tokens": 3, "forced_tokens": 1, "computed_tokens": 9}
        )
        record({"prompt_tokens": 10, "cached_tokens": None})
    assert totals == UsageTotals(2, 20, 6, 3, 1, recomputed_tokens=5)
    assert totals.computed_tokens == 9 + 10
    assert totals.hit_rate == pytest.approx(0.3)
    assert UsageTotals().hit_rate == 0.0
