"""The loops that drive a scheduler and a runner, one step a call; they decide nothing and know no model.

`NormalLoop`: plan N, run N, commit N. `OverlapLoop`: while N is in flight, N+1 is planned; then N is committed, the
tokens that N+1 waited for are filled in, and N+1 is launched. So results come one step late, and a request that ends in
N may have one row too many in N+1, whose result is dropped. The delay is the same in every run, and both loops
give every request the same tokens. A page that is freed at the commit of N can be handed out by plan N+2 at the
earliest, which runs after N+1, its last possible reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sglang_lite.runtime.scheduler.messages import Message, ReqOutput
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler


class Runner(Protocol):
    """What executes a plan. Plans come one at a time and in order."""

    def run(self, plan: Plan) -> StepResult:
        """Compute the plan's rows; one result a row."""
        ...


class Loop(Protocol):
    """One step a call."""

    def step(self, messages: Sequence[Message] = ()) -> list[ReqOutput]:
        """Take messages, go one step further; returns what requests got.

        Raises:
            RequestError: see `Scheduler.receive`; then nothing is done.
        """
        ...


class NormalLoop:
    """Every step's result is known before the next one is planned."""

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner

    def step(self, messages: Sequence[Message] = ()) -> list[ReqOutput]:
        """See `Loop`."""
        plan = self._scheduler.step(messages)
        return self._scheduler.commit(_run(self._runner, plan))


class OverlapLoop:
    """A step is planned while the one before it is in flight."""

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._result: StepResult | None = None
        """Of the step in flight: no part of the scheduler sees it before the next plan is made."""

    def step(self, messages: Sequence[Message] = ()) -> list[ReqOutput]:
        """See `Loop`."""
        plan = self._scheduler.step(messages)
        outputs = self.settle()
        if plan.rows:
            self._result = self._runner.run(self._scheduler.resolve(plan))
        else:
            outputs += self._scheduler.commit(StepResult(plan.step, ()))
        return outputs

    def settle(self) -> list[ReqOutput]:
        """Commit the step in flight, if there is one; returns what requests got."""
        if self._result is None:
            return []
        result, self._result = self._result, None
        return self._scheduler.commit(result)


def make_loop(scheduler: Scheduler, runner: Runner) -> NormalLoop | OverlapLoop:
    """The loop that the scheduler is configured for."""
    return (NormalLoop if scheduler.config.disable_overlap_schedule else OverlapLoop)(scheduler, runner)


def _run(runner: Runner, plan: Plan) -> StepResult:
    return runner.run(plan) if plan.rows else StepResult(plan.step, ())
