"""A recording of steps as a trace that Perfetto and chrome://tracing show, with a summary by part of a step."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.engine.spans import DeviceSpan, Span, Spans, idle_share, shares
from sglang_lite.runtime.engine.step_spans import GROUPS, IDLE, parts_in_order, tools_for, watch

_HOST, _DEVICE = 1, 2


class StepProfile:
    """Records until `end`, or until `num_steps` steps were done (None: no end); `write` comes after."""

    def __init__(self, folder: str, num_steps: int | None, device: str = "cpu") -> None:
        """Begin.

        Raises:
            RequestError: the folder cannot be written.
        """
        name = f"steps-{datetime.now(UTC):%Y%m%dT%H%M%S}-{time.monotonic_ns() % 1_000_000:06d}.trace.json"
        self.path = Path(folder) / name
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            raise RequestError(
                f"starting a profile: {self.path}: {error.strerror or error}; see --profile-folder"
            ) from None
        self._left = num_steps
        self._num_steps = 0
        self._events: list[dict[str, Any]] = []
        self._began_s = time.perf_counter()
        self._ended_s = self._began_s
        marker, timer = tools_for(device)
        self._watched = Spans(marker=marker, device=timer)
        self._spans: list[Span] = []
        self._device_spans: list[DeviceSpan] = []
        self._seconds: dict[str, float] = {}

    @property
    def is_done(self) -> bool:
        """All steps that were asked for are recorded."""
        return self._left is not None and self._left <= 0

    def begin(self, core: Any) -> None:
        """Time what `core` (an `EngineCore`) steps through, from here on; on the engine's thread."""
        watch(core, self._watched)
        self._began_s = time.perf_counter()

    def end(self) -> None:
        """Leave the engine as it was, and keep what was recorded; on the engine's thread."""
        self._watched.unwrap()
        self._ended_s = time.perf_counter()
        self._spans = list(self._watched.spans)
        self._seconds = dict(self._watched.seconds)
        self._device_spans = self._watched.device_spans()

    def add(self, number: int, started_s: float, ended_s: float, counts: Mapping[str, int]) -> None:
        """One step; times by `time.perf_counter`. `counts`: requests by place, as curves below the steps."""
        common = {"pid": _HOST, "tid": 0, "ts": self._microseconds(started_s)}
        self._events.append(
            {"ph": "X", "name": f"step {number}", "dur": (ended_s - started_s) * 1e6, "args": dict(counts), **common}
        )
        self._events.append({"ph": "C", "name": "requests", "args": dict(counts), **common})
        self._num_steps += 1
        if self._left is not None:
            self._left -= 1

    def summary(self) -> dict[str, Any]:
        """Plain data: `steps`, `seconds` of the recording, `parts` (seconds by part, each without its inner parts), `shares` by group
        of all but waiting for work, and of a device its `device_seconds` by part and `device_idle_share`.
        """
        parts = {part: self._seconds[part] for part in parts_in_order(self._seconds)}
        on_device: dict[str, float] = {}
        for span in self._device_spans:
            on_device[span.part] = on_device.get(span.part, 0.0) + span.ended_s - span.began_s
        return {
            "steps": self._num_steps,
            "seconds": self._ended_s - self._began_s,
            "parts": parts,
            "shares": shares({part: value for part, value in parts.items() if part != IDLE}, GROUPS),
            "device_seconds": on_device,
            "device_idle_share": idle_share(self._device_spans),
        }

    def write(self) -> str:
        """Write the trace; returns where it is."""
        threads = {
            thread: number for number, thread in enumerate(dict.fromkeys(span.thread for span in self._spans), 1)
        }
        events = [
            _event(
                span.part, _HOST, threads[span.thread], self._microseconds(span.began_s), span.ended_s - span.began_s
            )
            for span in self._spans
        ]
        events += [
            _event(span.part, _DEVICE, 0, span.began_s * 1e6, span.ended_s - span.began_s)
            for span in self._device_spans
        ]
        data = {"traceEvents": self._events + events, "displayTimeUnit": "ms", "otherData": self.summary()}
        self.path.write_text(json.dumps(data), encoding="utf-8")
        return str(self.path)

    def _microseconds(self, seconds: float) -> float:
        return (seconds - self._began_s) * 1e6


def _event(name: str, process: int, thread: int, microseconds: float, seconds: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": microseconds, "dur": seconds * 1e6}
