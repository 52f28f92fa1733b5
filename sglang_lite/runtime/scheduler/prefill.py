"""Which prompt tokens and choice edges run in a step: the chunk, then choices, then new requests."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.admission import Grant, NewTokenRatio, PrefillAdder, Refusal, reserved_tokens
from sglang_lite.runtime.scheduler.batch import RowKind, ScheduleBatch
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.policy import Moment, order_waiting
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req
from sglang_lite.runtime.scheduler.sharing import StepPrefixes


class PrefillPlanner:
    """Adds a step's prefill rows to its batch; keeps nothing between steps.

    Where the chunk or the choices of a live request lack memory, nothing new is admitted: what becomes free is theirs.
    """

    def __init__(
        self, config: SchedulerConfig, kv: KvManager, queue: WaitingQueue, live: LiveReqs, ratio: NewTokenRatio
    ) -> None:
        self._config = config
        self._kv = kv
        self._queue = queue
        self._live = live
        self._ratio = ratio

    def add_rows(
        self, batch: ScheduleBatch, running: Sequence[Req], num_decode: int, ahead: ScheduleBatch | None = None
    ) -> None:
        """Add rows for as much prefill as the budgets allow.

        Args:
            ahead: the step in flight; what its rows compute is worth waiting for.
            running: who decodes, in this step or later; their future KV is kept in reserve.
            num_decode: decode rows that run in the same step.
        """
        if not self._has_candidates():
            return
        adder = self._make_adder(running, num_decode)
        page = self._kv.page_size
        prefixes = StepPrefixes(page, self._config.min_shared_tokens)
        for row in ahead.rows if ahead is not None else ():
            if row.kind is RowKind.EXTEND and row.is_live:
                prefixes.add_leader(row.req.page_keys(page)[: row.plan.seq_len // page])
        has_memory = self._continue_chunk(batch, adder, prefixes)
        for req in list(self._live.scoring):
            has_memory = self._add_edges(batch, adder, req) and has_memory
        if has_memory:
            self._admit(batch, adder, prefixes)

    def first_in_line(self, step: int) -> Req:
        """The waiting request that is tried first in step `step`; one must wait."""
        return self._in_line(step)[0]

    def _in_line(self, step: int) -> list[Req]:
        config = self._config
        moment = Moment(self._queue.clock, step, config.random_seed)
        window = self._queue.window(config.scan_window)
        return order_waiting(config.schedule_policy, window, moment, self._probe, self._cached_path)

    def _has_candidates(self) -> bool:
        live = self._live
        if live.prefilling is not None or live.scoring:
            return True
        return len(self._queue) > 0 and self._kv.free_rows > 0 and len(live) < self._config.max_running_requests

    def _make_adder(self, running: Sequence[Req], num_decode: int) -> PrefillAdder:
        config, page = self._config, self._kv.page_size
        reserved = reserved_tokens(((r.tokens_left, r.params.ignore_eos) for r in running), self._ratio.value)
        decode_need = page * sum(r.hold is not None and r.planned_len >= r.hold.allocated_len for r in running)
        decode_need = decode_need if num_decode else 0
        chunk = config.chunked_prefill_size
        return PrefillAdder(
            page_size=page,
            reserved=reserved + decode_need,
            decode_need=decode_need,
            # At least a page: prefill goes on however many rows decode.
            rem_input=max(config.max_prefill_tokens - num_decode, page),
            rem_chunk=max((chunk - num_decode) // page * page, page) if chunk is not None else None,
            rem_slots=min(self._kv.free_rows, config.max_running_requests - len(self._live)),
            is_alone=not len(self._live),
        )

    def _continue_chunk(self, batch: ScheduleBatch, adder: PrefillAdder, prefixes: StepPrefixes) -> bool:
        req = self._live.prefilling
        if req is None:
            return True
        if req.end_reason is not None:
            adder.may_cut = False  # it keeps its place until its row in flight is committed
            return True
        hold = req.hold
        assert hold is not None and adder.rem_chunk is not None, f"request {req.rid!r} is cut without a chunk size"
        page, start = self._kv.page_size, req.planned_len
        room = hold.allocated_len + max(self._kv.available_tokens - adder.decode_need, 0)
        # All but the end of the prompt are whole pages, so a cut falls between two.
        end = min(req.fill_len, start + adder.rem_chunk, room)
        if end <= start:
            return False
        grown = self._kv.grow(hold, end)
        assert grown, (
            f"request {req.rid!r} cannot grow to {end} although {self._kv.available_tokens} tokens are available"
        )
        is_cut = end < req.fill_len
        adder.added(Grant(end - start, is_cut), req.tokens_left, takes_slot=False)
        batch.add_extend(req, end)
        prefixes.add_leader(req.page_keys(page))
        if not is_cut:
            self._live.prefilling = None
            self._live.fresh.append(req)
        return True

    def _add_edges(self, batch: ScheduleBatch, adder: PrefillAdder, req: Req) -> bool:
        """Add the request's pending edges while they fit; False: its next one lacks memory and it has no row yet."""
        score = req.score
        assert score is not None and req.hold is not None, f"request {req.rid!r} is scoring without choices"
        page, num_rows = self._kv.page_size, 0
        while score.pending and req.end_reason is None:
            edge = score.tree.edges[score.pending[0]]
            parent = req.hold if edge.parent is None else score.holds[edge.parent]
            at_len = req.prompt_len + edge.start
            known = max(at_len // page * page, min(at_len, parent.committed_len))
            cost = at_len + edge.row_len - known
            if not _fits(adder, cost):
                break
            new_len = at_len + edge.row_len
            new_pages = -(-new_len // page) - at_len // page
            if new_pages * page > self._kv.available_tokens - adder.decode_need:
                return num_rows > 0
            admission = self._kv.branch(parent, at_len, new_len)
            if admission is None:
                return num_rows > 0
            index = score.pending.pop(0)
            score.in_flight.add(index)
            score.holds[index] = admission.hold
            batch.copies.extend(admission.copies)
            batch.add_edge(req, index, admission.hold)
            adder.charge(cost)
            num_rows += 1
        return True

    def _admit(self, batch: ScheduleBatch, adder: PrefillAdder, prefixes: StepPrefixes) -> None:
        if not len(self._queue) or adder.rem_slots <= 0 or adder.refusal_for_more(self._kv.available_tokens):
            return
        for req in self._in_line(batch.step):
            prefix_len = self._probe(req)
            if prefixes.should_wait(req.page_keys(self._kv.page_size), prefix_len, req.match_limit, req.seq_len):
                continue
            grant = adder.try_add(prefix_len, req.seq_len, req.tokens_left, self._kv.available_tokens)
            if isinstance(grant, Refusal) or not self._start(batch, req, prefix_len + grant.extend_len):
                break
            adder.added(grant, req.tokens_left)
            prefixes.add_leader(req.page_keys(self._kv.page_size))
            if adder.rem_slots <= 0 or adder.refusal_for_more(self._kv.available_tokens):
                break

    def _start(self, batch: ScheduleBatch, req: Req, end: int) -> bool:
        """Give the request a row with its first tokens up to `end` in this step; False: too little memory."""
        add = req.add
        admission = self._kv.admit(
            add.namespace, req.ids, match_limit=req.match_limit, new_len=end, lease=add.lease, next_use=add.next_use
        )
        if admission is None:
            return False
        self._queue.admitted(req)
        req.hold = admission.hold
        req.fill_len = req.seq_len
        req.planned_len = admission.hold.cached_len
        if req.counts.cached_tokens is None:
            req.counts.cached_tokens = admission.hold.cached_len
            batch.first_admitted.append(req.rid)
        batch.copies.extend(admission.copies)
        batch.add_extend(req, end)
        if end < req.fill_len:
            self._live.prefilling = req
        else:
            self._live.fresh.append(req)
        return True

    def _probe(self, req: Req) -> int:
        return self._kv.probe(req.add.namespace, req.ids, req.match_limit)

    def _cached_path(self, req: Req) -> list[int]:
        page = self._kv.page_size
        return req.page_keys(page)[: self._probe(req) // page]


def _fits(adder: PrefillAdder, cost: int) -> bool:
    """The first of a step always fits: no edge's row is longer than a chunk."""
    if not adder.num_added:
        return True
    return adder.rem_input > 0 if adder.rem_chunk is None else cost <= adder.rem_chunk
