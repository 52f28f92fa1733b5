"""Requests that hold nothing: the waiting queue and those whose grammar is still being compiled."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from sglang_lite.runtime.scheduler.admission import CLIP
from sglang_lite.runtime.scheduler.req import Req


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Requests now and since the start. `clock`: tokens computed so far. `aged`: waiting ones that go before all others."""

    waiting: int
    waiting_for_grammar: int
    aged: int
    admitted: int
    clock: int


class WaitingQueue:
    """Waiting requests by rank, in each rank first come first served; a retracted one comes back to its old place.

    **Ageing by a token clock.** `clock` counts the tokens that were computed for anybody. A request that comes is given
    a deadline: the clock, plus all tokens that those already waiting may need at most, plus `ageing_tokens`. From then on
    it goes before every request that has not aged. Every step computes at least one token, so whatever the policy,
    nobody waits for more steps than that sum; and time is measured in work, not in requests or seconds.

    Attributes:
        num_admitted: requests admitted so far.
        clock: tokens computed so far.

    """

    def __init__(self, ageing_tokens: int) -> None:
        self.num_admitted = 0
        self.clock = 0
        self._ageing_tokens = ageing_tokens
        self._ready: dict[int, list[Req]] = {}
        self._num_ready = 0
        self._waiting_tokens = 0
        self._unready: dict[str, Req] = {}

    def __len__(self) -> int:
        return self._num_ready

    def __iter__(self) -> Iterator[Req]:
        return chain.from_iterable(self._ready[rank] for rank in sorted(self._ready))

    @property
    def waiting_for_grammar(self) -> tuple[Req, ...]:
        """Those that cannot be scheduled yet, in order of arrival."""
        return tuple(self._unready.values())

    @property
    def num_queued(self) -> int:
        """All requests in the queue, those that wait for a grammar included."""
        return self._num_ready + len(self._unready)

    def add(self, req: Req) -> None:
        """Put a request into its place."""
        if req.waits_for_grammar:
            self._unready[req.rid] = req
            return
        self._unready.pop(req.rid, None)
        if not req.deadline:
            req.deadline = self.clock + self._waiting_tokens + self._ageing_tokens + 1
        insort(self._ready.setdefault(req.rank, []), req, key=_order)
        self._num_ready += 1
        self._waiting_tokens += _most_tokens(req)

    def remove(self, req: Req) -> None:
        """Take a request out."""
        if self._unready.pop(req.rid, None) is not None:
            return
        ready = self._ready.get(req.rank, [])
        at = bisect_left(ready, req.order, key=_order)
        assert at < len(ready) and ready[at] is req, f"request {req.rid!r} is not in the waiting queue"
        del ready[at]
        if not ready:
            del self._ready[req.rank]
        self._num_ready -= 1
        self._waiting_tokens -= _most_tokens(req)

    def admitted(self, req: Req) -> None:
        """Take a request out because it runs now."""
        self.remove(req)
        self.num_admitted += 1

    def window(self, size: int) -> list[Req]:
        """The first `size` requests and, if it is not among them, the one that came first of all.

        So an aged request is seen however many of a better rank wait.
        """
        window = list(islice(self, size))
        if len(self._ready) > 1:
            oldest = min((ready[0] for ready in self._ready.values()), key=_order)
            if oldest not in window:
                window.append(oldest)
        return window

    def last_below(self, rank: int) -> Req | None:
        """The newest request of the last rank, if that comes after `rank` and it has never run; None: there is none."""
        candidates = [req for req in (*self, *self._unready.values()) if req.rank > rank and not req.counts.retractions]
        return max(candidates, key=lambda req: (req.rank, req.order), default=None)

    def statistics(self) -> QueueStatistics:
        """Counts now and since the start. O(waiting)."""
        aged = sum(self.clock >= req.deadline for req in self)
        return QueueStatistics(self._num_ready, len(self._unready), aged, self.num_admitted, self.clock)


def _order(req: Req) -> tuple[int, bool, int]:
    return req.order


def _most_tokens(req: Req) -> int:
    """What a waiting request may cost at most."""
    return req.seq_len + min(req.tokens_left, CLIP)
