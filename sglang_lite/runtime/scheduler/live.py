"""Requests that hold memory, by what they do; the only place that takes memory away from one."""

from __future__ import annotations

from collections.abc import Container, Iterator

from sglang_lite.runtime.memory.kv import KvHold, KvManager
from sglang_lite.runtime.scheduler.admission import CLIP, NewTokenRatio
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req


class LiveReqs:
    """The requests with a hold, each in exactly one place.

    Attributes:
        prefilling: the one request whose prompt is computed in pieces; or None.
        fresh: requests whose prompt is finished in the step that is planned or in flight.
        completed: prefills completed in the last step; they join `running` at the next choice. Where that is made ahead
            of the commit, those in flight that will give a token join too.
        running: requests that decode.
        scoring: requests whose prompt is computed and whose choices are not all scored.

    """

    def __init__(self, kv: KvManager, queue: WaitingQueue, ratio: NewTokenRatio) -> None:
        self.kv = kv
        self.ratio = ratio
        self.prefilling: Req | None = None
        self.fresh: list[Req] = []
        self.completed: list[Req] = []
        self.running: list[Req] = []
        self.scoring: list[Req] = []
        self.num_retracts = 0
        self._queue = queue

    def __iter__(self) -> Iterator[Req]:
        if self.prefilling is not None:
            yield self.prefilling
        yield from self.fresh
        yield from self.completed
        yield from self.running
        yield from self.scoring

    def __len__(self) -> int:
        places = (self.fresh, self.completed, self.running, self.scoring)
        return sum(map(len, places)) + (self.prefilling is not None)

    def holds(self) -> Iterator[KvHold]:
        """All holds of all requests, those of scored edges included."""
        for req in self:
            assert req.hold is not None, f"request {req.rid!r} is live and holds nothing"
            yield req.hold
            if req.score is not None:
                yield from req.score.holds.values()

    def join_ahead(self) -> None:
        """The next choice is made while the prompts of the fresh ones are in flight: their first tokens will come."""
        self.completed += [req for req in self.fresh if req.samples]
        self.fresh = [req for req in self.fresh if not req.samples]

    def prefilled(self, req: Req) -> None:
        """A fresh request's prompt is computed; if it joined ahead, it is in its place already."""
        if req in self.fresh:
            self.fresh.remove(req)
            (self.completed if req.score is None else self.scoring).append(req)

    def drop(self, req: Req, *, keep_prefix: bool) -> None:
        """Take everything from a request; with `keep_prefix` its computed tokens stay in the cache."""
        if self.prefilling is req:
            self.prefilling = None
        for place in (self.fresh, self.completed, self.running, self.scoring):
            if req in place:
                place.remove(req)
        if req.score is not None:
            self.release_edges(req, list(reversed(req.score.holds)))
        assert req.hold is not None, f"request {req.rid!r} is dropped and holds nothing"
        self.kv.release(req.hold, req.ids if keep_prefix else None)
        req.counts.evicted_pages += req.hold.evicted_pages
        req.hold = None
        req.planned_len = req.num_pending = req.num_drafted = 0

    def release_edges(self, req: Req, edges: list[int]) -> None:
        """Give back what scored edges hold, children before parents."""
        assert req.score is not None, f"request {req.rid!r} has no choices"
        for edge in edges:
            hold = req.score.holds.pop(edge)
            self.kv.release(hold, None)
            req.counts.evicted_pages += hold.evicted_pages

    def retract(self, req: Req) -> None:
        """Back to the queue: its own KV is freed at once; ids, text, grammar and what was sent stay as they are."""
        self.drop(req, keep_prefix=False)
        if req.score is not None:
            req.score.restart()
        req.counts.retractions += 1
        self.num_retracts += 1
        self.ratio.retracted(
            (len(r.output_ids), min(r.text.rules.max_new_tokens, CLIP)) for r in (*self.running, *self.completed)
        )
        self._queue.add(req)

    def victim(self, planned: Container[str]) -> Req | None:
        """Whom to retract: last rank, then least output, longest prompt, newest; not one with a row in the step.

        None: at most one request could be taken, and one is always kept.
        """
        candidates = [req for req in self if req.rid not in planned]
        if len(candidates) < 2:
            return None
        return min(
            candidates,
            key=lambda req: (-req.rank, len(req.output_ids), -req.prompt_len, tuple(-n for n in req.order)),
        )
