"""Requests that hold nothing: the waiting queue and those whose grammar is still being compiled."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from sglang_lite.runtime.scheduler.req import Req


class WaitingQueue:
    """Waiting requests in the order of first come first served; a retracted one comes back to its old place.

    Attributes:
        num_admitted: requests admitted so far, the clock of ageing.

    """

    def __init__(self, ageing_slack: int) -> None:
        self.num_admitted = 0
        self._slack = ageing_slack
        self._ready: list[Req] = []
        self._unready: dict[str, Req] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._ready)

    @property
    def waiting_for_grammar(self) -> tuple[Req, ...]:
        """Those that cannot be scheduled yet, in order of arrival."""
        return tuple(self._unready.values())

    def add(self, req: Req) -> None:
        """Put a request into its place."""
        if req.waits_for_grammar:
            self._unready[req.rid] = req
            return
        self._unready.pop(req.rid, None)
        if not req.deadline:
            # Everybody who is ahead may go first, and so many others.
            req.deadline = self.num_admitted + len(self._ready) + self._slack + 1
        insort(self._ready, req, key=_order)

    def remove(self, req: Req) -> None:
        """Take a request out."""
        if self._unready.pop(req.rid, None) is not None:
            return
        at = bisect_left(self._ready, req.order, key=_order)
        assert self._ready[at] is req, f"request {req.rid!r} is not in the waiting queue"
        del self._ready[at]

    def admitted(self, req: Req) -> None:
        """Take a request out because it runs now."""
        self.remove(req)
        self.num_admitted += 1

    def window(self, size: int) -> list[Req]:
        """The first `size` requests."""
        return list(islice(self._ready, size))


def _order(req: Req) -> tuple[int, bool, int]:
    return req.order
