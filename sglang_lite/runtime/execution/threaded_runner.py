"""A runner on a thread of its own: plans are computed there while their owner plans the next; knows no model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from sglang_lite.runtime.execution.model_runner import RunnerCounters
from sglang_lite.runtime.scheduler.loop import Runner
from sglang_lite.runtime.scheduler.plan import Plan, StepResult


class CountingRunner(Runner, Protocol):
    """A runner that counts what it computes."""

    @property
    def counters(self) -> RunnerCounters:
        """Since the start."""
        ...


class ThreadedRunner:
    """A `BackgroundRunner` over another runner, which only this thread uses from then on.

    Safe because of what a plan is: its arrays are its own, and what else it refers to (the tokens of its requests, their cursors)
    belongs to requests in flight, which the scheduler leaves alone until their result is committed. Tables that cursors of
    several requests share guard themselves.
    """

    def __init__(self, runner: CountingRunner) -> None:
        self._runner = runner
        self._plans: queue.SimpleQueue[tuple[Plan, Future[StepResult]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="sglang-lite-runner", daemon=True)
        self._is_closed = False
        self._thread.start()

    @property
    def counters(self) -> RunnerCounters:
        """What was computed since the start."""
        return self._runner.counters

    def start(self, plan: Plan) -> Callable[[], StepResult]:
        """See `BackgroundRunner`."""
        assert not self._is_closed, f"plan {plan.step} comes to a runner that is closed"
        future: Future[StepResult] = Future()
        self._plans.put((plan, future))
        return future.result

    def run(self, plan: Plan) -> StepResult:
        """Compute a plan and wait for it."""
        return self.start(plan)()

    def close(self) -> None:
        """End the thread after the plan that it computes. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._plans.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._plans.get()) is not None:
            plan, future = job
            try:
                future.set_result(self._runner.run(plan))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                future.set_exception(error)
            del job, plan, future  # nothing of a plan is kept until the next one comes
