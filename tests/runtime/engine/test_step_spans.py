"""What a recording wraps of an engine's parts, over stand-ins of each kind of runner and over torch modules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tests.support.kernel_cache  # noqa: F401 - before any kernel is compiled
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.engine.spans import Spans
from sglang_lite.runtime.engine.step_spans import GROUPS, parts_in_order, tools_for, watch
from sglang_lite.runtime.execution.draft_runner import DraftRunner
from sglang_lite.runtime.execution.model_runner import RunnerCounters
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
from sglang_lite.runtime.model.layers import RMSNorm
from sglang_lite.runtime.scheduler.plan import ForwardMode, Plan, StepResult

PLAN = Plan(0, ForwardMode.DECODE, ())


class Part:
    """Any part: has the methods that it is made with, which do nothing."""

    def __init__(self, *names: str) -> None:
        self.__dict__.update(dict.fromkeys(names, self._nothing))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @staticmethod
    def _nothing(*_args: Any) -> None:
        return


class Model(torch.nn.Module):
    """A norm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(4, 1e-6)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return x


class HostRunner:
    """Runs at once, as `ModelRunner` does."""

    def __init__(self) -> None:
        self._model = Model()
        self._attention = Part("plan", "forward")
        self._sampler = Part("sample")
        self.counters = RunnerCounters()

    def run(self, plan: Plan) -> StepResult:
        self._attention.plan()
        self._model.logits(self._model.forward(torch.ones(1, 4)))
        self._sampler.sample()
        return StepResult(plan.step, ())


class Flight:
    """A step in flight."""

    def __init__(self, runner: DeviceLikeRunner) -> None:
        self._runner = runner

    def sample(self) -> None:
        self._runner.ops.sample()

    def result(self) -> None:
        return


class DeviceLikeRunner:
    """Queues, as `DeviceRunner` does."""

    def __init__(self) -> None:
        self.model = Model()
        self.attention = Part("plan", "forward")
        self.ops = Part("sample", "apply_masks")

    def launch(self) -> Flight:
        self.model.forward(torch.ones(1, 4))
        return Flight(self)


def core_of(runner: Any) -> Any:
    scheduler = Part("step", "resolve", "commit")
    scheduler.__dict__["kv"] = Part("admit", "commit")
    names = ("_hand_out", "_take_commands", "_next_command", "_step")
    core = Part(*names)
    core.__dict__.update(scheduler=scheduler, _runner=runner)
    return core


def test_parts_of_a_runner_that_runs_at_once() -> None:
    runner = HostRunner()
    core, spans = core_of(runner), Spans()
    watch(core, spans)
    core.scheduler.step()
    runner.run(PLAN)
    core.scheduler.commit()
    core.scheduler.kv.admit()
    core._hand_out()
    assert {span.part for span in spans.spans} == {
        *("plan", "commit", "radix tree and pages", "text and replies"),
        *("batch and results", "attention plan", "forward", "norm", "linear", "head", "sampling"),
    }
    count = len(spans.spans)
    spans.unwrap()
    runner.run(PLAN)
    core.scheduler.step()
    assert len(spans.spans) == count


def test_flights_of_a_device_are_followed() -> None:
    runner = DeviceLikeRunner()
    spans = Spans()
    watch(core_of(runner), spans)
    flight = runner.launch()
    flight.sample()
    flight.result()
    parts = [span.part for span in spans.spans]
    assert parts.count("batch and results") == 2  # the launch, and what is queued to sample
    assert "waiting for the device" in parts
    assert "sampling" in parts


def test_a_runner_on_a_thread_of_its_own_is_looked_into() -> None:
    runner = ThreadedRunner(HostRunner())
    spans = Spans()
    watch(core_of(runner), spans)
    runner.start(PLAN)()
    runner.close()
    by_part = {span.part: span.thread for span in spans.spans}
    assert by_part["forward"] == by_part["sampling"]
    assert "batch and results" in by_part


def test_a_draft_model_is_a_part_of_its_own_and_its_target_is_looked_into() -> None:
    pool = KvPool(1, 2, 1, 1, 1)
    runner = DraftRunner(HostRunner(), Model(), Part(), pool, draft_vocab_size=2, vocab_size=2)  # type: ignore[arg-type]
    spans = Spans()
    watch(core_of(runner), spans)
    runner.run(PLAN)
    runner._guess({})
    assert {"draft model", "batch and results", "forward", "sampling"} <= {span.part for span in spans.spans}


def test_only_a_gpu_has_tools_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    events = iter(range(10))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            self.at_ms = 1000 * next(events)

        def record(self) -> None:
            told.append("record")

        def elapsed_time(self, other: Event) -> int:
            return other.at_ms - self.at_ms

    nvtx = SimpleNamespace(range_push=told.append, range_pop=lambda: told.append("pop"))
    monkeypatch.setattr(torch.cuda, "nvtx", nvtx)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: told.append("wait"))
    assert tools_for("cpu") == (None, None)
    marker, timer = tools_for("cuda:0")
    assert marker is not None
    assert timer is not None
    spans = Spans(marker=marker, device=timer)
    part = Part("forward")
    spans.wrap(part, "forward", "forward", on_device=True)
    part.forward()
    (span,) = spans.device_spans()
    assert (span.began_s, span.ended_s) == (0.0, 1.0)
    assert told == ["forward", "record", "record", "pop", "wait"]


def test_parts_come_in_the_order_of_a_step() -> None:
    assert parts_in_order({"other": 1.0, "sampling": 1.0, "plan": 1.0}) == ["plan", "sampling", "other"]
    assert set(GROUPS.values()) == {
        "scheduler",
        "batch preparation",
        "kernels",
        "sampling and grammar",
        "text and programs",
    }
