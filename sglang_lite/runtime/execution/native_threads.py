"""How many threads share a step: as many as pay. Knows times only; results are the same for every number.

Threads that share a step wait for each other at every phase, some hundred times in a few milliseconds. When another
program takes one of their cores, all of them are slow, and a step of one token on one thread is faster. So small steps
are timed, and now and then one is run with another number of threads to see.
"""

from __future__ import annotations

import statistics
from collections import deque

_SMALL = 32
"""Steps with more tokens last so long between two phases that all threads always pay."""

_REMEMBERED = 5
_FIRST_INTERVAL, _LAST_INTERVAL = 8, 64


class ThreadChoice:
    """Chooses for each step; told how long it took.

    Attributes:
        best: the number of threads that small steps run on at present.

    """

    def __init__(self, count: int) -> None:
        """Choose among 1, half of `count` and `count` threads."""
        assert count >= 1, f"the number of threads must be at least 1, got {count}"
        self.best = count
        self._count = count
        self._options = sorted({1, max(1, count // 2), count})
        self._times: dict[tuple[int, int], deque[float]] = {}
        self._interval = _FIRST_INTERVAL
        self._until_trial = _FIRST_INTERVAL
        self._next_trial = 0

    def choose(self, tokens: int) -> int:
        """Threads for a step of `tokens` tokens."""
        if tokens > _SMALL or len(self._options) == 1:
            return self._count
        self._until_trial -= 1
        if self._until_trial > 0:
            return self.best
        self._until_trial = self._interval
        others = [option for option in self._options if option != self.best]
        self._next_trial += 1
        return others[self._next_trial % len(others)]

    def report(self, tokens: int, threads: int, seconds: float) -> None:
        """A step of `tokens` tokens on `threads` threads took `seconds`."""
        if tokens > _SMALL or len(self._options) == 1:
            return
        size = tokens.bit_length()
        self._times.setdefault((size, threads), deque(maxlen=_REMEMBERED)).append(seconds)
        known = {
            option: statistics.median(self._times[size, option])
            for option in self._options
            if (size, option) in self._times
        }
        if self.best not in known:
            return
        best = min(known, key=known.__getitem__)
        if best != self.best:
            self.best, self._interval = best, _FIRST_INTERVAL
            self._until_trial = self._interval
        elif threads != self.best:
            self._interval = min(2 * self._interval, _LAST_INTERVAL)
            self._until_trial = self._interval
