"""The loop with a delay of one step gives what the plain one gives, and its delay is what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sglang_lite.errors import CancelledError, KvOutOfMemoryError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.loop import AsyncLoop, NormalLoop, OverlapLoop, make_loop
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, Message
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.fake_device import FakeDevice, FakeFlight
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


@pytest.fixture(params=[False, True], ids=["delay", "ahead"])
def overlapping(request: pytest.FixtureRequest) -> Callable[..., Harness]:
    """Makes harnesses whose steps overlap: launched when the one ahead is committed, or before."""

    def make(num_pages: int = 64, **changes: object) -> Harness:
        cfg = config(disable_overlap_schedule=False, launch_ahead=request.param, **changes)
        return Harness(cfg, num_pages=num_pages, page_size=4)

    return make


Overlapping = Callable[..., Harness]


def test_the_configuration_chooses_the_loop() -> None:
    assert isinstance(Bench(overlap=False).loop, NormalLoop)
    assert isinstance(Bench(overlap=True).loop, OverlapLoop)
    device = Harness(config(disable_overlap_schedule=False, launch_ahead=True))
    assert isinstance(make_loop(device.scheduler, device.device), AsyncLoop)
    with pytest.raises(AssertionError, match="needs a runner that can launch, got Bench"):
        Bench(overlap=True, launch_ahead=True)


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
def test_an_unforeseen_end_costs_one_row_at_most_whose_result_is_dropped(overlapping: Overlapping, end: str) -> None:
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


def test_what_an_ended_request_leaves_is_not_written_before_its_last_row_has_run(overlapping: Overlapping) -> None:
    """The overshoot row writes into a page that is free or in the tree by then; who gets the page next writes later."""
    harness = overlapping(num_pages=9)
    first = reference(AddReq("a", LONG[:6], greedy(9)), harness.config).ids
    harness.step(AddReq("a", LONG[:6], greedy(9, stop_token_ids=(first[2],))))
    while harness.scheduler.is_known("a"):
        harness.step()
    last = harness.plans[-1].rows[0]
    assert last.is_future, "its overshoot row was in the last plan"
    for i in range(6):
        harness.drain(AddReq(f"b{i}", (*LONG[:6], *first[:3], i), greedy(3)), AddReq(f"c{i}", (9, i) * 6, greedy(3)))
    harness.check_idle()


def test_an_id_may_be_used_again_while_the_old_ones_last_row_is_in_flight(overlapping: Overlapping) -> None:
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


def test_nobody_is_retracted_or_fails_while_a_step_is_in_flight(overlapping: Overlapping) -> None:
    """Its results may end somebody: where memory is short the plan is empty, and the next one knows."""
    harness = overlapping(num_pages=10, schedule_conservativeness=0.05)
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
    alone = overlapping(num_pages=9, context_length=200)
    final = alone.drain(AddReq("r", (2, 3, 4), greedy(100)))["r"]
    assert isinstance(final.error, KvOutOfMemoryError)
    assert len(final.ids) == 30


def test_followers_wait_for_a_leader_in_flight(overlapping: Overlapping) -> None:
    """Its prefix is not in the tree yet; computed twice it would be if only this step's rows counted."""
    harness = overlapping(schedule_policy="fcfs")
    prompt = tuple(2 + i % 7 for i in range(33))
    harness.step(AddReq("f0", prompt, greedy(2)))
    harness.drain(*[AddReq(f"f{i}", prompt, greedy(2)) for i in range(1, 6)])
    harness.check_idle()
    assert harness.scheduler.statistics().computed_tokens == 33 + 5


def test_prompt_log_probabilities_of_chunks_in_flight_are_not_asked_for_twice(overlapping: Overlapping) -> None:
    harness = overlapping(chunked_prefill_size=8)
    harness.drain(AddReq("r", LONG, greedy(3), logprob=LogprobParams(0, 2, (4,))))
    harness.check_idle()
    assert sum(len(row.targets) for plan in harness.plans for row in plan.rows) == 29


def test_a_plan_may_be_one_ahead_and_no_more() -> None:
    harness = Harness(config(disable_overlap_schedule=False))
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


class Recorder(FakeDevice):
    """A device that notes in which order it is asked."""

    def __init__(self) -> None:
        super().__init__(64, 4, VOCAB)
        self.events: list[str] = []
        self.launched: list[Plan] = []
        self.plans: list[Plan] = []

    def launch(self, plan: Plan) -> FakeFlight:
        self.events.append(f"launch {plan.step}")
        self.launched.append(plan)
        self.plans.append(plan)
        return RecordedFlight(super().launch(plan), self)  # type: ignore[return-value]


class RecordedFlight:
    def __init__(self, flight: FakeFlight, recorder: Recorder) -> None:
        self.flight, self.recorder = flight, recorder
        self.step = recorder.plans[-1].step

    def sample(self, plan: Plan) -> None:
        self.recorder.events.append(f"sample {self.step}")
        self.recorder.plans[-1] = plan
        self.flight.sample(plan)

    def result(self) -> StepResult:
        self.recorder.events.append(f"result {self.step}")
        return self.flight.result()


def ahead(*adds: AddReq, **changes: object) -> tuple[Recorder, dict[str, Final]]:
    """Run requests to their ends on a device that takes steps ahead."""
    cfg = config(disable_overlap_schedule=False, launch_ahead=True, **changes)
    kv = KvManager(num_rows=16, num_pages=64, page_size=4, max_len=64)
    scheduler, device = Scheduler(cfg, kv, VISIBLE), Recorder()
    loop = make_loop(scheduler, device)
    finals: dict[str, Final] = {}
    messages: Sequence[Message] = adds
    while messages or scheduler.has_work:
        for output in loop.step(messages):
            finals.setdefault(output.rid, Final()).take(output)
        messages = ()
    for add in adds:
        assert finals[add.rid].ids == reference(add, cfg).ids
    return device, finals


def test_a_step_is_launched_before_the_result_of_the_one_ahead_is_awaited() -> None:
    """And is told how to sample after it, when the constraints know the token."""
    device, _ = ahead(AddReq("a", LONG, greedy(3)))
    assert device.events[:7] == ["launch 1", "sample 1", "launch 2", "result 1", "sample 2", "launch 3", "result 2"]


@pytest.mark.parametrize("mode", ["verify", "force"])
def test_a_row_launched_ahead_carries_no_guesses_and_the_next_one_waits_for_them(mode: str) -> None:
    """Forced tokens become known when the row is in flight: the row after it has them, one step later."""
    forced = frozenset({5}) if mode == "verify" else frozenset({3, 5, 7, 8})
    places = [frozenset({2, 3, 4})] * 2 + [forced] * 6 + [frozenset({2, 3})] * 2
    grammar = FakeGrammar(places, EOS, [None] * 2 + [5] * 6 + [None] * 2)
    add = AddReq("a", LONG, greedy(20, jump_forward=mode), grammar=grammar)
    device, finals = ahead(add)
    rows = [row for plan in device.plans for row in plan.rows]
    assert any(row.drafts for row in rows), "the run is tried together"
    assert all(len(row.input_ids) == 1 for plan in device.launched for row in plan.rows if row.is_future)
    assert len(rows) < len(finals["a"].ids) + 1, "so fewer rows than tokens"
    others = sum(len(plan.rows) == 0 for plan in device.plans)
    assert others == 0, "a device sees no empty plan"


def test_guesses_from_earlier_text_are_tried_on_steps_ahead() -> None:
    device, finals = ahead(AddReq("a", LONG, greedy(30)), AddReq("b", LONG[4:], greedy(30)), num_ngram_tokens=4)
    assert {rid for plan in device.plans for row in plan.rows if row.drafts for rid in [row.rid]}
    assert len(finals["a"].ids) == len(finals["b"].ids) == 30
