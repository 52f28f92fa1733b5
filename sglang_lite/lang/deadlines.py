"""Timeouts: one daemon thread for all of them, alive only while one is set."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True, slots=True)
class Deadline:
    """An action at a time of its clock; `action` None: called off."""

    at: float
    number: int
    action: Callable[[], None] | None = field(compare=False)


class DeadlineClock:
    """Calls each action once its time has come, unless it was called off before. `now`: the time in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._heap: list[Deadline] = []
        self._numbers = itertools.count()
        self._is_running = False

    def set(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Call `action`, which must be quick and not raise, in `seconds` from now."""
        deadline = Deadline(self._now() + seconds, next(self._numbers), action)
        with self._changed:
            heapq.heappush(self._heap, deadline)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="sglang_lite-deadlines", daemon=True).start()
            if self._heap[0] is deadline:  # else the thread sleeps no longer than it should
                self._changed.notify()
        return deadline

    def call_off(self, deadline: Deadline) -> None:
        """The action is no longer wanted."""
        with self._changed:
            deadline.action = None
            if self._heap and self._heap[0] is deadline:
                self._changed.notify()

    def _work(self) -> None:
        while (action := self._next()) is not None:
            action()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while self._heap:
                first = self._heap[0]
                left = first.at - self._now()
                if first.action is None:
                    heapq.heappop(self._heap)
                elif left <= 0:
                    return heapq.heappop(self._heap).action
                else:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
            self._is_running = False
            return None


shared_clock = DeadlineClock()
"""The clock of the process."""
