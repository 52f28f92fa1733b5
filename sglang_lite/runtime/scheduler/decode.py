"""Decode rows: one more token for every running request, and who gives way when pages run out."""

from __future__ import annotations

from collections.abc import Container

from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.batch import ScheduleBatch, num_wanted
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.req import Req

_RESERVE = 8
"""Guesses that pages are kept for where the token before them is still in flight."""


class DecodePlanner:
    """Grows running requests by a token; retracts others where that needs it."""

    def __init__(self, kv: KvManager, live: LiveReqs, *, launch_ahead: bool = False) -> None:
        self._kv = kv
        self._live = live
        self._launch_ahead = launch_ahead

    def grow(self, planned: Container[str], *, may_retract: bool) -> list[Req] | None:
        """Running requests that have room for their next row, after retracting those that stand in the way.

        Left out are those that end in flight for certain: by length, or by an abort. So are, where rows are launched ahead,
        those whose place in the sequence depends on guesses in flight, and those that have a run to try next.

        Args:
            planned: requests with rows in this step; they are not retracted.
            may_retract: False while a step is in flight, since its results are still to come. Then, where memory is
                short, nobody decodes in this step (None), and the next one knows more.
        """
        reqs = [req for req in self._live.running if not _ends_in_flight(req)]
        if self._launch_ahead:
            reqs = [req for req in reqs if not req.num_drafted and not (req.num_pending and req.jump.is_due)]
        short = _short(reqs)
        if not short:
            return reqs
        while len(short) * self._kv.page_size > self._kv.available_tokens:
            if not may_retract:
                return None
            victim = self._live.victim(planned)
            if victim is None:
                break
            self._live.retract(victim)
            reqs = [req for req in reqs if req is not victim]
            short = _short(reqs)
        stuck = {req.rid for req in short if req.hold is None or not self._kv.grow(req.hold, req.planned_len + 1)}
        return [req for req in reqs if req.rid not in stuck]

    def add_rows(self, batch: ScheduleBatch, reqs: list[Req]) -> None:
        """Add a decode row for each of `reqs`, which have grown; with guesses as far as pages are left over."""
        for req in reqs:
            run = [] if req.num_pending else self.run_of(req)
            reserve = 0 if self._launch_ahead else _RESERVE
            self._make_room(req, (reserve if req.num_pending else len(run)) + num_wanted(req))
            batch.add_decode(req, run)
        if reqs:
            self._live.ratio.decay()

    def run_of(self, req: Req) -> list[int]:
        """The forced or guessed tokens to try in a request's next row."""
        return req.jump.run_after(req.ids, req.grammar, req.add.input_ids)

    def _make_room(self, req: Req, num_guesses: int) -> None:
        """Pages for guesses, where they are to be had without a retract; where not, fewer guesses fit."""
        hold = req.hold
        guesses = req.jump.guesser is not None or (req.jump.mode != "off" and req.grammar is not None)
        if not guesses or hold is None or not num_guesses:
            return
        wanted = min(req.planned_len + 1 + min(num_guesses, req.tokens_left), self._kv.max_len)
        missing = -(-(wanted - hold.allocated_len) // self._kv.page_size)
        # A page for everybody stays: guesses are no reason to retract anybody in the next steps.
        if missing > 0 and (missing + len(self._live)) * self._kv.page_size <= self._kv.available_tokens:
            self._kv.grow(hold, wanted)


def _ends_in_flight(req: Req) -> bool:
    return req.end_reason is not None or len(req.output_ids) + req.num_pending >= req.text.rules.max_new_tokens


def _short(reqs: list[Req]) -> list[Req]:
    return [req for req in reqs if req.hold is not None and req.planned_len >= req.hold.allocated_len]
