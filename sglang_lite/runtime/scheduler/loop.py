"""The loops that drive a scheduler and a runner, one step a call; they decide nothing and know no model.

`NormalLoop`: plan N, run N, commit N.

`OverlapLoop`: while N is in flight, N+1 is planned; then N is committed, the tokens that N+1 waited for are filled in,
and N+1 is launched. So results come one step late, and a request that ends in N may have one row too many in N+1, whose
result is dropped. The delay is the same in every run. A runner that computes in the background computes N during the
planning of N+1.

`AsyncLoop`, for devices with a queue of their own: N+1 is planned and its forward is queued while N runs, the tokens of N
being taken from where the device keeps them; then N is committed, and how N+1 samples is queued. So between two forwards
the device waits for nothing that happens here. Constraints write their masks while the forward runs.

All of them give every request the same tokens. A page that is freed at the commit of N can be handed out by plan N+2 at the
earliest. In the first two loops that plan runs after N+1, the page's last possible reader, has run; in the third it is
queued behind it, and a device does its queue in order. Nothing else that a forward reads is ever written again: plans own
their arrays, and a runner must not write over what a queued transfer has yet to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from sglang_lite.runtime.scheduler.messages import Message, ReqOutput
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler


@runtime_checkable
class Runner(Protocol):
    """What executes a plan. Plans come one at a time and in order."""

    def run(self, plan: Plan) -> StepResult:
        """Compute the plan's rows; one result a row."""
        ...


@runtime_checkable
class BackgroundRunner(Protocol):
    """What executes a plan while its caller goes on."""

    def start(self, plan: Plan) -> Callable[[], StepResult]:
        """Begin to compute the plan's rows, every token of which is known. The function that comes back waits for the result,
        and raises what the computation raised; it is called once, before the next `start`.
        """
        ...


@runtime_checkable
class ClosableRunner(Protocol):
    """A runner that has something to end, such as a thread."""

    def close(self) -> None:
        """End it, after what is under way. Idempotent."""
        ...


class Flight(Protocol):
    """A plan whose forward is queued."""

    def sample(self, plan: Plan) -> None:
        """Queue the drawing of tokens: `plan` is the one that was launched, resolved. Called once; constraints are asked here."""
        ...

    def result(self) -> StepResult:
        """Wait for the results, one a row. Called once, after `sample`."""
        ...


@runtime_checkable
class AsyncRunner(Protocol):
    """What queues plans on a device, in order."""

    def launch(self, plan: Plan) -> Flight:
        """Queue the plan's copies and its forward. The input of an `is_future` row is the token that the row of the same
        request draws in the plan before, which has been told how to sample.
        """
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
        return self._scheduler.commit(self._runner.run(plan) if plan.rows else StepResult(plan.step, ()))


class OverlapLoop:
    """A step is planned while the one before it is in flight."""

    def __init__(self, scheduler: Scheduler, runner: Runner | BackgroundRunner) -> None:
        self._scheduler = scheduler
        self._start = runner.start if isinstance(runner, BackgroundRunner) else _at_once(runner)
        self._result: Callable[[], StepResult] | None = None
        """Of the step in flight: no part of the scheduler sees it before the next plan is made."""

    def step(self, messages: Sequence[Message] = ()) -> list[ReqOutput]:
        """See `Loop`."""
        plan = self._scheduler.step(messages)
        outputs = self.settle()
        if plan.rows:
            self._result = self._start(self._scheduler.resolve(plan))
        else:
            outputs += self._scheduler.commit(StepResult(plan.step, ()))
        return outputs

    def settle(self) -> list[ReqOutput]:
        """Commit the step in flight, if there is one; returns what requests got."""
        if self._result is None:
            return []
        result, self._result = self._result, None
        return self._scheduler.commit(result())


class AsyncLoop:
    """A step is planned, and its forward queued, while the one before it is in flight."""

    def __init__(self, scheduler: Scheduler, runner: AsyncRunner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._flight: Flight | None = None

    def step(self, messages: Sequence[Message] = ()) -> list[ReqOutput]:
        """See `Loop`."""
        plan = self._scheduler.step(messages)
        flight = self._runner.launch(plan) if plan.rows else None
        outputs = self.settle()
        if flight is not None:
            flight.sample(self._scheduler.resolve(plan))
            self._flight = flight
        else:
            outputs += self._scheduler.commit(StepResult(plan.step, ()))
        return outputs

    def settle(self) -> list[ReqOutput]:
        """Commit the step in flight, if there is one; returns what requests got."""
        if self._flight is None:
            return []
        flight, self._flight = self._flight, None
        return self._scheduler.commit(flight.result())


def make_loop(
    scheduler: Scheduler, runner: Runner | BackgroundRunner | AsyncRunner
) -> NormalLoop | OverlapLoop | AsyncLoop:
    """The loop that the scheduler is configured for."""
    config = scheduler.config
    if config.launch_ahead:
        assert isinstance(runner, AsyncRunner), (
            f"launch_ahead needs a runner that can launch, got {type(runner).__name__}"
        )
        return AsyncLoop(scheduler, runner)
    if config.disable_overlap_schedule:
        return NormalLoop(scheduler, _plain(runner))
    return OverlapLoop(scheduler, runner if isinstance(runner, BackgroundRunner) else _plain(runner))


def _plain(runner: Runner | BackgroundRunner | AsyncRunner) -> Runner:
    assert isinstance(runner, Runner), f"{type(runner).__name__} cannot run a plan at once"
    return runner


def _at_once(runner: Runner) -> Callable[[Plan], Callable[[], StepResult]]:
    def start(plan: Plan) -> Callable[[], StepResult]:
        result = runner.run(plan)
        return lambda: result

    return start
