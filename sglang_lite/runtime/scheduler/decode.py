"""Decode rows: one more token for every running request, and who gives way when pages run out."""

from __future__ import annotations

from collections.abc import Container

from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.batch import ScheduleBatch
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.req import Req


class DecodePlanner:
    """Grows running requests by a token; retracts others where that needs it."""

    def __init__(self, kv: KvManager, live: LiveReqs) -> None:
        self._kv = kv
        self._live = live

    def grow(self, planned: Container[str]) -> list[Req]:
        """Running requests that have room for their last token's KV, after retracting those that stand in the way.

        Args:
            planned: requests with rows in this step; they are not retracted.
        """
        short = self._short()
        while len(short) * self._kv.page_size > self._kv.available_tokens:
            victim = self._live.victim(planned)
            if victim is None:
                break
            self._live.retract(victim)
            short = self._short()
        stuck = {req.rid for req in short if req.hold is None or not self._kv.grow(req.hold, req.seq_len)}
        return [req for req in self._live.running if req.rid not in stuck]

    def add_rows(self, batch: ScheduleBatch, reqs: list[Req]) -> None:
        """Add a decode row for each of `reqs`, which have grown."""
        for req in reqs:
            batch.add_decode(req)
        if reqs:
            self._live.ratio.decay()

    def _short(self) -> list[Req]:
        return [req for req in self._live.running if req.hold is not None and req.seq_len > req.hold.allocated_len]
