"""What processes hold while a soak runs: threads, files, sockets and memory over time, and whether the memory grows. Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WARM_SHARE = 0.25
"""The first part of a life: what fills once (pools, caches, the allocator's arenas) is not growth."""


def children(pid: int) -> list[int]:
    """Processes that `pid` started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(one) for one in (task / "children").read_text().split()]
    return found


def usage(pid: int) -> dict[str, int]:
    """Threads, open files and sockets, and resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    names: list[str] = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(os.readlink(one))
        except FileNotFoundError:
            continue
    return {
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "files": len(names),
        "sockets": sum(name.startswith("socket:") for name in names),
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }


def slope(points: list[tuple[float, int]]) -> float:
    """Bytes per second by the points (seconds, bytes), least squares; 0 for fewer than two."""
    if len(points) < 2:
        return 0.0
    mean_s = sum(at for at, _ in points) / len(points)
    mean_bytes = sum(size for _, size in points) / len(points)
    spread = sum((at - mean_s) ** 2 for at, _ in points)
    return sum((at - mean_s) * (size - mean_bytes) for at, size in points) / spread if spread else 0.0


@dataclass
class Curve:
    """Usage of one process over its life, by seconds since the start of the soak."""

    pid: int
    seconds: list[float] = field(default_factory=list)
    samples: list[dict[str, int]] = field(default_factory=list)

    def add(self, at: float, sample: dict[str, int]) -> None:
        """One more sample, `at` seconds since the start."""
        self.seconds.append(at)
        self.samples.append(sample)

    def warm(self) -> list[tuple[float, int]]:
        """(seconds, bytes) behind the first `WARM_SHARE` of the life."""
        if not self.seconds:
            return []
        begin = self.seconds[0] + WARM_SHARE * (self.seconds[-1] - self.seconds[0])
        return [(at, one["bytes"]) for at, one in zip(self.seconds, self.samples, strict=True) if at >= begin]

    def growth(self) -> float:
        """Bytes that the line through the warm part rises from its begin to its end."""
        points = self.warm()
        return slope(points) * (points[-1][0] - points[0][0]) if points else 0.0

    def report(self) -> dict[str, Any]:
        """The curve in MiB, its slope in KiB a second."""
        return {
            "pid": self.pid,
            "seconds": [round(at, 1) for at in self.seconds],
            "rss_mib": [round(one["bytes"] / 2**20, 1) for one in self.samples],
            "slope_kib_per_s": round(slope(self.warm()) / 1024, 3),
            "growth_mib": round(self.growth() / 2**20, 2),
        }


class Watch:
    """Curves of a server's process and of each scheduler that it started."""

    def __init__(self, pid: int) -> None:
        self.server = Curve(pid)
        self.schedulers: dict[int, Curve] = {}

    def sample(self, at: float) -> None:
        """Add one sample of each process that lives."""
        self.server.add(at, usage(self.server.pid))
        for pid in children(self.server.pid):
            try:
                sample = usage(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # killed just now
            self.schedulers.setdefault(pid, Curve(pid)).add(at, sample)

    @property
    def last_scheduler(self) -> Curve:
        """The one that started last."""
        return max(self.schedulers.values(), key=lambda one: one.seconds[0])
