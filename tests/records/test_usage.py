"""What ops cost, one by one and together."""

from __future__ import annotations

from sglang_lite.lang import ScriptedBackend
from sglang_lite.records.usage import OpUsage, RunUsage, UsageTotals, usage_of
from sglang_lite.request_tree import GenOp, SamplingParams
from tests.records.support import REPLIES, outline

META = {
    "prompt_tokens": 10,
    "cached_tokens": 6,
    "computed_tokens": 9,
    "completion_tokens": 5,
    "forced_tokens": 2,
    "evicted_pages": 3,
    "queue_time": 0.25,
    "seed": 11,
}


def test_an_op_is_counted_with_all_its_attempts() -> None:
    op = GenOp(4, 2, "x", SamplingParams())
    usage = usage_of(op, [META, META | {"seed": 12}], 1.5)
    assert (usage.op, usage.branch, usage.kind, usage.name) == (4, 2, "gen", "x")
    assert (usage.requests, usage.prompt_tokens, usage.cached_tokens, usage.computed_tokens) == (2, 20, 12, 18)
    assert (usage.sampled_tokens, usage.forced_tokens, usage.evicted_pages) == (6, 4, 6)
    assert (usage.queue_s, usage.seconds, usage.seed) == (0.5, 1.5, 12)


def test_every_sample_is_a_request() -> None:
    totals = UsageTotals()
    totals.add(META | {"samples": [META, META, META]})
    assert (totals.requests, totals.completion_tokens) == (3, 15)


def test_what_a_backend_does_not_say_counts_as_nothing() -> None:
    usage = usage_of(GenOp(0, 0, None, SamplingParams()), [{}], 0.0)
    assert (usage.prompt_tokens, usage.computed_tokens, usage.queue_s, usage.seed) == (0, 0, None, None)


def test_a_run_sums_its_ops() -> None:
    run = RunUsage(seconds=2.0)
    for requests in (1, 2):
        run.add_op(OpUsage(requests=requests, prompt_tokens=5, forced_tokens=1, completion_tokens=3))
    assert (run.requests, run.prompt_tokens, run.sampled_tokens, len(run.ops)) == (3, 10, 4, 2)
    assert run.to_json()["seconds"] == 2.0


def test_a_state_gives_its_run_op_by_op() -> None:
    usage = outline.run(backend=ScriptedBackend(REPLIES)).usage()
    assert [one.name for one in usage.ops] == ["topic", "idea", "idea", "pick", "last"]
    assert [one.branch for one in usage.ops] == [0, 1, 2, 0, 0]
    assert usage.requests == 5
    assert usage.sampled_tokens == sum(one.sampled_tokens for one in usage.ops) > 0
    assert usage.seconds >= max(one.seconds for one in usage.ops) > 0
