"""A recording of steps as a trace that Perfetto and chrome://tracing show; it is told of steps and knows no scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sglang_lite.errors import RequestError


class StepProfile:
    """Records until `write`, or until `num_steps` steps were done (None: no end)."""

    def __init__(self, folder: str, num_steps: int | None) -> None:
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
        self._events: list[dict[str, Any]] = []
        self._began_s = time.perf_counter()

    @property
    def is_done(self) -> bool:
        """All steps that were asked for are recorded."""
        return self._left is not None and self._left <= 0

    def add(self, number: int, started_s: float, ended_s: float, counts: Mapping[str, int]) -> None:
        """One step; times by `time.perf_counter`. `counts`: requests by place, as curves below the steps."""
        common = {"pid": 1, "tid": 1, "ts": (started_s - self._began_s) * 1e6}
        self._events.append(
            {"ph": "X", "name": f"step {number}", "dur": (ended_s - started_s) * 1e6, "args": dict(counts), **common}
        )
        self._events.append({"ph": "C", "name": "requests", "args": dict(counts), **common})
        if self._left is not None:
            self._left -= 1

    def write(self) -> str:
        """Write the trace; returns where it is."""
        self.path.write_text(json.dumps({"traceEvents": self._events, "displayTimeUnit": "ms"}), encoding="utf-8")
        return str(self.path)
