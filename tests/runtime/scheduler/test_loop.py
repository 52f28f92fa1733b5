"""The loop with a delay of one step gives what the plain one gives, and its delay is what it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sglang_lite.errors import CancelledError, KvOutOfMemoryError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.loop import NormalLoop, OverlapLoop, make_loop
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, Message
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.fake_grammar import FakeGrammar
from tests.support.fake_runner import FakeRunner
from tests.support.scheduler_harness import EOS, VISIBLE, VOCAB, Final, Harness, config, greedy, reference

LONG = tuple(2 + i % 9 for i in range(30))


class Bench:
    """A loop of either kind over a runner that keeps its plans."""

    def __init__(self, *, overlap: bool, **changes: object) -> None:
        self.config = config(disable_overlap_schedule=not overlap, **changes)
        self.kv = KvManager(num_rows=16, num_pages=64, page_size=4, max_len=64)
        self.scheduler = Scheduler(self.config, self.kv, VISIBLE)
        self.fake = FakeRunner(64, 4, VOCAB)
        self.plans: list[Plan] = []
        self.loop = make_loop(self.scheduler, self)
        self.finals: dict[str, Final] = {}

    def run(self, plan: Plan) -> StepResult:
        self.plans.append(plan)
        return self.fake.run(plan)

    def step(self, *messages: Message) -> None:
        for output in self.loop.step(messages):
            self.finals.setdefault(output.rid, Final()).take(output)

    def drain(self, *messages: Message) -> dict[str, Final]:
        self.step(*messages)
        while self.scheduler.has_work:
            self.step()
        return self.finals

    def rows(self) -> list[Sequence[str]]:
        return [[row.rid for row in plan.rows] for plan in self.plans]


def overlapping(**changes: object) -> Harness:
    return Harness(config(disable_overlap_schedule=False, **changes))


def test_the_configuration_chooses_the_loop() -> None:
    assert isinstance(Bench(overlap=False).loop, NormalLoop)
    assert isinstance(Bench(overlap=True).loop, OverlapLoop)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_loop_serves_requests_and_stands_still_without_any(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    bench.step()
    add = AddReq("a", LONG, greedy(5))
    final = bench.drain(add)["a"]
    assert final.ids == reference(add, bench.config).ids
    bench.step()
    assert all(plan.rows for plan in bench.plans), "a runner sees no empty plan"


def test_results_come_one_step_late_and_no_runner_sees_a_placeholder() -> None:
    bench = Bench(overlap=True)
    bench.step(AddReq("a", LONG, greedy(4)))
    assert (bench.rows(), bench.finals) == ([["a"]], {})
    bench.step()
    assert len(bench.finals["a"].ids) == 1, "the first token, while the second is in flight"
    bench.drain()
    assert all(FUTURE_TOKEN not in row.input_ids and not row.is_future for plan in bench.plans for row in plan.rows)
    assert bench.rows() == [["a"]] * 4, "an end by length is known beforehand: no row too many"
    assert bench.scheduler.statistics().dropped_rows == 0


@pytest.mark.parametrize(
    "end",
    ["stop token", "stop string", "grammar", "failed row", "abort", "a scoring request", "an abort in its chunks"],
)
def test_an_unforeseen_end_costs_one_row_at_most_whose_result_is_dropped(end: str) -> None:
    harness = overlapping(chunked_prefill_size=8)
    plain = reference(AddReq("r", LONG[:5], greedy(12)), harness.config)
    beside = AddReq("beside", LONG[3:9], greedy(20))
    params, add = greedy(12), None
    if end == "stop token":
        params = greedy(12, stop_token_ids=(plain.ids[4],))
    elif end == "stop string":
        params = greedy(12, stop=(plain.data[3:5].decode("utf-8", "ignore") or "a",))
    elif end == "grammar":
        add = AddReq("r", LONG[:5], greedy(12), grammar=FakeGrammar([frozenset(range(2, 9))] * 4, EOS))
    elif end == "a scoring request":
        add = AddReq("r", LONG[:5], greedy(12), choices=((2, 3, 4, 5, 6, 7), (2, 3, 9), (4,)))
    elif end == "an abort in its chunks":
        add = AddReq("r", LONG, greedy(12))
    harness.step(add or AddReq("r", LONG[:5], params), beside)
    if end == "failed row":
        harness.runner.fail_rids.add("r")
    for _ in range(2):
        harness.step()
    if "abort" in end:
        harness.step(in_flight=[AbortReq("r", CancelledError("a test"))])
    harness.drain()
    harness.check_idle()
    assert harness.scheduler.statistics().dropped_rows <= 1
    if end in ("stop token", "grammar", "failed row", "abort"):
        assert harness.scheduler.statistics().dropped_rows == 1


def test_what_an_ended_request_leaves_is_not_written_before_its_last_row_has_run() -> None:
    """The overshoot row writes into a page that is free or in the tree by then; who gets the page next writes later."""
    harness = Harness(config(disable_overlap_schedule=False), num_pages=9, page_size=4)
    first = reference(AddReq("a", LONG[:6], greedy(9)), harness.config).ids
    harness.step(AddReq("a", LONG[:6], greedy(9, stop_token_ids=(first[2],))))
    while harness.scheduler.is_known("a"):
        harness.step()
    last = harness.plans[-1].rows[0]
    assert last.is_future, "its overshoot row was in the last plan"
    for i in range(6):
        harness.drain(AddReq(f"b{i}", (*LONG[:6], *first[:3], i), greedy(3)), AddReq(f"c{i}", (9, i) * 6, greedy(3)))
    harness.check_idle()


def test_an_id_may_be_used_again_while_the_old_ones_last_row_is_in_flight() -> None:
    harness = overlapping()
    first = reference(AddReq("r", LONG[:6], greedy(9)), harness.config).ids
    harness.step(AddReq("r", LONG[:6], greedy(9, stop_token_ids=(first[1],))))
    while harness.scheduler.is_known("r"):
        harness.step()
    del harness.finals["r"]
    assert harness.in_flight is not None
    harness.step(AddReq("r", (7, 8, 9), greedy(5)))
    harness.step(AbortReq("r"))
    harness.step()
    assert not harness.scheduler.is_known("r")
    harness.drain()
    harness.check_idle()


def test_nobody_is_retracted_or_fails_while_a_step_is_in_flight() -> None:
    """Its results may end somebody: where memory is short the plan is empty, and the next one knows."""
    cfg = config(disable_overlap_schedule=False, schedule_conservativeness=0.05)
    harness = Harness(cfg, num_pages=10, page_size=4)
    params = greedy(20, ignore_eos=False, min_new_tokens=20)
    retractions = 0
    harness.step(AddReq("a", (2, 3, 4), params), AddReq("b", (5, 6, 7, 8), params))
    while harness.scheduler.has_work:
        was_in_flight = harness.in_flight is not None
        harness.step()
        now = harness.scheduler.statistics().retractions
        assert not (was_in_flight and now > retractions)
        retractions = now
    assert retractions >= 1
    harness.check_idle()
    alone = Harness(config(disable_overlap_schedule=False, context_length=200), num_pages=9, page_size=4)
    final = alone.drain(AddReq("r", (2, 3, 4), greedy(100)))["r"]
    assert isinstance(final.error, KvOutOfMemoryError)
    assert len(final.ids) == 30


def test_followers_wait_for_a_leader_in_flight() -> None:
    """Its prefix is not in the tree yet; computed twice it would be if only this step's rows counted."""
    harness = overlapping(schedule_policy="fcfs")
    prompt = tuple(2 + i % 7 for i in range(33))
    harness.step(AddReq("f0", prompt, greedy(2)))
    harness.drain(*[AddReq(f"f{i}", prompt, greedy(2)) for i in range(1, 6)])
    harness.check_idle()
    assert harness.scheduler.statistics().computed_tokens == 33 + 5


def test_prompt_log_probabilities_of_chunks_in_flight_are_not_asked_for_twice() -> None:
    harness = overlapping(chunked_prefill_size=8)
    harness.drain(AddReq("r", LONG, greedy(3), logprob=LogprobParams(0, 2, (4,))))
    harness.check_idle()
    assert sum(len(row.targets) for plan in harness.plans for row in plan.rows) == 29


def test_a_plan_may_be_one_ahead_and_no_more() -> None:
    harness = overlapping()
    scheduler = harness.scheduler
    first = scheduler.step([AddReq("r", (2, 3), greedy())])
    second = scheduler.step()
    assert second.rows[0].is_future
    assert np.array_equal(first.rows[0].pages, second.rows[0].pages)
    with pytest.raises(AssertionError, match="step 1 is not committed"):
        scheduler.step()
    with pytest.raises(AssertionError, match="launched with 2 plans in flight"):
        scheduler.resolve(second)
    with pytest.raises(AssertionError, match="result of step 2, the plan in flight is step 1"):
        scheduler.commit(StepResult(2, ()))
    scheduler.commit(harness.runner.run(first))
    scheduler.commit(harness.runner.run(scheduler.resolve(second)))
