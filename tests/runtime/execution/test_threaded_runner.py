"""A runner on its own thread: results and errors come to who waits for them, and its end is clean."""

from __future__ import annotations

import threading

import pytest

from sglang_lite.runtime.execution.model_runner import RunnerCounters
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
from sglang_lite.runtime.scheduler.loop import BackgroundRunner, ClosableRunner, OverlapLoop, make_loop
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from tests.runtime.execution.support import plan_of
from tests.support.scheduler_harness import Final, Harness, config, greedy, reference


class Gated:
    """A runner that waits until it is let go, and notes its thread."""

    def __init__(self, runner: object = None) -> None:
        self.counters = RunnerCounters()
        self.runner = runner
        self.may_run = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.threads: set[int] = set()

    def run(self, plan: Plan) -> StepResult:
        self.threads.add(threading.get_ident())
        self.started.release()
        assert self.may_run.acquire(timeout=30)
        if self.runner is None:
            raise ValueError(f"plan {plan.step} fails on purpose")
        return self.runner.run(plan)  # type: ignore[attr-defined]


def test_the_next_step_is_planned_while_this_one_is_computed() -> None:
    harness = Harness(config(disable_overlap_schedule=False))
    gated = Gated(harness.runner)
    runner = ThreadedRunner(gated)
    loop = make_loop(harness.scheduler, runner)
    assert isinstance(loop, OverlapLoop)
    add = AddReq("a", (2, 3, 4), greedy(4))
    assert loop.step([add]) == []
    assert gated.started.acquire(timeout=30)
    plan = harness.scheduler.step()
    assert plan.rows[0].is_future, "planned, with the step before it still at the gate"
    for _ in range(10):
        gated.may_run.release()
    final = Final()
    for output in loop.settle():
        final.take(output)
    harness.scheduler.commit(runner.run(harness.scheduler.resolve(plan)))
    while harness.scheduler.has_work:
        loop.step()
    assert reference(add, harness.config).ids[0] == final.ids[0]
    assert gated.threads.isdisjoint({threading.get_ident()})
    runner.close()


def test_an_error_of_the_computation_is_raised_where_its_result_is_awaited() -> None:
    gated = Gated()
    runner = ThreadedRunner(gated)
    gated.may_run.release()
    result = runner.start(plan_of(step=3))
    with pytest.raises(ValueError, match="plan 3 fails on purpose"):
        result()
    gated.may_run.release()
    with pytest.raises(ValueError, match="plan 4 fails on purpose"):
        runner.run(plan_of(step=4))
    runner.close()


def test_close_lets_the_plan_under_way_end_and_leaves_no_thread() -> None:
    gated = Gated()
    before = set(threading.enumerate())
    runner = ThreadedRunner(gated)
    assert isinstance(runner, ClosableRunner)
    assert isinstance(runner, BackgroundRunner)
    result = runner.start(plan_of(step=1))
    assert gated.started.acquire(timeout=30)
    gated.may_run.release()
    runner.close()
    runner.close()
    assert "sglang-lite-runner" not in {thread.name for thread in set(threading.enumerate()) - before}
    with pytest.raises(ValueError, match="plan 1 fails"):
        result()
    with pytest.raises(AssertionError, match="plan 2 comes to a runner that is closed"):
        runner.start(plan_of(step=2))
