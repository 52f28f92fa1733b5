"""Which calls of a running engine a recording times, and what it calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sglang_lite.runtime.engine.spans import DeviceTimer, RangeMarker, Spans
from sglang_lite.runtime.execution.draft_runner import DraftRunner
from sglang_lite.runtime.model.layers import RMSNorm

IDLE = "waiting for work"
GROUPS = {
    "plan": "scheduler",
    "commit": "scheduler",
    "radix tree and pages": "scheduler",
    "batch and results": "batch preparation",
    "attention plan": "batch preparation",
    "waiting for the device": "kernels",
    "forward": "kernels",
    "attention": "kernels",
    "draft model": "kernels",
    "linear": "kernels",
    "norm": "kernels",
    "head": "kernels",
    "sampling": "sampling and grammar",
    "grammar": "sampling and grammar",
    "text and replies": "text and programs",
    "programs": "text and programs",
    "loop": "text and programs",
}
"""Parts, in the order of a step, by the four answers to the question where its time goes."""

_KV_CALLS = ("begin_plan", "probe", "admit", "grow", "commit", "checkpoint", "branch", "release")
_CURSOR_CALLS = ("accept_token", "fill_bitmask", "jump_forward", "closing_run")
_SAMPLER_CALLS = ("sample", "few_ids", "sample_among")
_DEVICE_SAMPLER_CALLS = ("apply_masks", "apply_penalties", "sample", "score")


def watch(core: Any, spans: Spans) -> None:
    """Wrap what `core` (an `EngineCore`) steps through; `spans.unwrap` takes all of it back. On the engine's thread.

    The core, its runner and its loop are looked into by name: nothing of them exists for the sake of a recording, so steps
    that are not recorded pay nothing.
    """
    scheduler, runner = core.scheduler, core._runner
    for name, part in (("step", "plan"), ("resolve", "plan"), ("commit", "commit")):
        spans.wrap(scheduler, name, part)
    for name in _KV_CALLS:
        spans.wrap(scheduler.kv, name, "radix tree and pages")
    _watch_runner(runner, spans)
    cursor = _cursor_class()
    for name in _CURSOR_CALLS:
        spans.wrap(cursor, name, "grammar")
    spans.wrap(core, "_hand_out", "text and replies")
    spans.wrap(core, "_take_commands", "programs")
    spans.wrap(core, "_next_command", IDLE)
    spans.wrap(core, "_step", "loop")


def _watch_runner(runner: Any, spans: Spans) -> None:
    inner = getattr(runner, "_runner", runner)  # a runner with a thread of its own
    if inner is not runner:
        spans.wrap(runner, "start", "batch and results")
    spans.wrap(inner, "run", "batch and results")
    if isinstance(inner, DraftRunner):
        spans.wrap(inner, "_guess", "draft model", on_device=True)
        inner = inner.target
        spans.wrap(inner, "run", "batch and results")

    def watch_flight(flight: Any) -> None:
        spans.wrap(flight, "sample", "batch and results")
        spans.wrap(flight, "result", "waiting for the device")

    spans.wrap(inner, "launch", "batch and results", then=watch_flight)
    model, attention = _first(inner, "model", "_model"), _first(inner, "attention", "_attention")
    spans.wrap(model, "forward", "forward", on_device=True)
    for name in ("logits", "logits_of"):
        spans.wrap(model, name, "head", on_device=True)
    spans.wrap(attention, "plan", "attention plan")
    spans.wrap(attention, "forward", "attention")
    for name in _SAMPLER_CALLS:
        spans.wrap(getattr(inner, "_sampler", None), name, "sampling")
    for name in _DEVICE_SAMPLER_CALLS:
        spans.wrap(getattr(inner, "ops", None), name, "sampling", on_device=True)
    _watch_modules(model, spans)


def _watch_modules(model: Any, spans: Spans) -> None:
    """Linear layers and norms of torch modules; a native step and a replayed graph are one call, without parts."""
    module = getattr(model, "_model", model)
    if not isinstance(module, nn.Module):
        return

    def hook(child: nn.Module, part: str) -> None:
        def before(_module: nn.Module, _inputs: Any) -> None:
            spans.enter(part)

        def after(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            spans.leave()

        spans.on_end(child.register_forward_pre_hook(before).remove)
        spans.on_end(child.register_forward_hook(after).remove)

    for child in module.modules():
        if isinstance(child, RMSNorm):
            hook(child, "norm")
        elif hasattr(child, "out_features"):
            hook(child, "linear")


def _first(owner: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)


def _cursor_class() -> type:
    from sglang_lite.grammar.matcher import GrammarMatcher  # compiled kernels: only once their folder is named

    return GrammarMatcher


class _Nvtx:
    """Ranges of NVIDIA's tools."""

    def push(self, name: str) -> None:
        torch.cuda.nvtx.range_push(name)

    def pop(self) -> None:
        torch.cuda.nvtx.range_pop()


class _CudaTimer:
    """Events in the current stream."""

    def stamp(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        return first.elapsed_time(second) / 1e3

    def wait(self) -> None:
        torch.cuda.synchronize()


def tools_for(device: str) -> tuple[RangeMarker | None, DeviceTimer | None]:
    """What a device has for recordings: ranges that its own tools show, and a clock. The CPU has neither."""
    if not device.startswith("cuda"):
        return None, None
    return _Nvtx(), _CudaTimer()


def parts_in_order(seconds: dict[str, float]) -> list[str]:
    """The parts that took time, in the order of a step, then those without a place in it."""
    known: Callable[[str], int] = list(GROUPS).index
    return sorted(seconds, key=lambda part: (part not in GROUPS, known(part) if part in GROUPS else 0, part))
