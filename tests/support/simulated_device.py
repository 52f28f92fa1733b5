"""A device that does its queue as late as it may, or now and then earlier, and checks who touches a buffer when.

Host and device each have a vector clock (what of the other they know to have happened). Work that is queued knows what the host
has done until then; a host that has waited for a mark knows what the device has done before it. Two touches of one
buffer, one of them a write, must be ordered by that knowledge, however they were ordered by chance.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.runtime.execution.device_queue import HostBuffer

HOST, DEVICE = "host", "device"


@dataclass
class Touch:
    who: str
    at: int
    what: str


@dataclass
class Actor:
    """`clock`: by actor, up to which of its touches everything is known to have happened."""

    name: str
    clock: dict[str, int] = field(default_factory=lambda: {HOST: 0, DEVICE: 0})

    def knows(self, touch: Touch) -> bool:
        return touch.who == self.name or self.clock[touch.who] >= touch.at

    def learn(self, clock: dict[str, int]) -> None:
        self.clock = {who: max(at, clock[who]) for who, at in self.clock.items()}


class SimulatedQueue:
    """A `DeviceQueue`. `eager`: how often queued work is done early, in [0, 1]."""

    device = torch.device("cpu")

    def __init__(self, seed: int = 0, eager: float = 0.0) -> None:
        self.host, self.dev = Actor(HOST), Actor(DEVICE)
        self.num_waits = 0
        """Waits for work that was not done yet."""
        self._random = random.Random(seed)
        self._eager = eager
        self._pending: deque[tuple[Callable[[], None], dict[str, int]]] = deque()
        self._done_clocks: list[dict[str, int]] = []
        self._num_queued = 0
        self._runs = False

    @property
    def actor(self) -> Actor:
        """Who acts now."""
        return self.dev if self._runs else self.host

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def submit(self, work: Callable[[], None]) -> None:
        assert not self._runs, "work is queued by work"
        self._pending.append((work, dict(self.host.clock)))
        self._num_queued += 1
        while self._pending and self._random.random() < self._eager:
            self._run_next()

    def mark(self) -> SimulatedMark:
        return SimulatedMark(self, self._num_queued)

    def host_buffer(self, num_bytes: int) -> CheckedBuffer:
        return CheckedBuffer(self, num_bytes)

    def run_until(self, count: int) -> None:
        """The host waits until so many pieces of work are done."""
        self.num_waits += len(self._done_clocks) < count
        while len(self._done_clocks) < count:
            self._run_next()
        if count:
            self.host.learn(self._done_clocks[count - 1])

    def _run_next(self) -> None:
        work, clock = self._pending.popleft()
        self.dev.learn(clock)
        self._runs = True
        try:
            work()
        finally:
            self._runs = False
        self._done_clocks.append(dict(self.dev.clock))


class SimulatedMark:
    def __init__(self, queue: SimulatedQueue, count: int) -> None:
        self._queue = queue
        self._count = count

    def wait(self) -> None:
        self._queue.run_until(self._count)


class CheckedBuffer(HostBuffer):
    """A buffer whose touches must be ordered."""

    def __init__(self, queue: SimulatedQueue, num_bytes: int) -> None:
        super().__init__(num_bytes, pinned=False)
        self._queue = queue
        self._last_write: Touch | None = None
        self._reads: list[Touch] = []

    def put(self, offset: int, array: NDArray[np.generic]) -> None:
        self._touch("put", writes=True)
        super().put(offset, array)

    def get(self, num_bytes: int) -> NDArray[np.uint8]:
        self._touch("get", writes=False)
        return super().get(num_bytes)

    def to_device(self, num_bytes: int, device: torch.device) -> torch.Tensor:
        self._touch("to_device", writes=False)
        return super().to_device(num_bytes, device)

    def from_device(self, tensor: torch.Tensor) -> None:
        self._touch("from_device", writes=True)
        super().from_device(tensor)

    def _touch(self, what: str, *, writes: bool) -> None:
        actor = self._queue.actor
        assert (actor.name == DEVICE) == what.endswith("device"), f"{actor.name} does {what}"
        actor.clock[actor.name] += 1
        now = Touch(actor.name, actor.clock[actor.name], what)
        before = [self._last_write] if self._last_write is not None else []
        for touch in [*before, *self._reads] if writes else before:
            assert actor.knows(touch), f"{now} is not ordered after {touch}"
        if writes:
            self._last_write, self._reads = now, []
        else:
            self._reads.append(now)
