"""Scheduler: messages in, one plan out; results in, outputs out. It runs nothing, reads no clock, does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_lite.errors import CancelledError, KvOutOfMemoryError, RequestError, SglangLiteError
from sglang_lite.runtime.memory.kv import KvManager, KvStatistics
from sglang_lite.runtime.scheduler.admission import NewTokenRatio
from sglang_lite.runtime.scheduler.batch import ScheduleBatch
from sglang_lite.runtime.scheduler.commit import Committer
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.decode import DecodePlanner
from sglang_lite.runtime.scheduler.intake import Intake
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.messages import (
    AbortReq,
    AddReq,
    EndLease,
    FinishReason,
    GrammarReady,
    Message,
    ReqOutput,
    SetNextUse,
    Usage,
    VisibleBytes,
)
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.policy import choose_next
from sglang_lite.runtime.scheduler.prefill import PrefillPlanner
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req, ReqState


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """Requests by place now, tokens since the start, and the memory's own counts."""

    step: int
    waiting: int
    waiting_for_grammar: int
    prefilling: int
    running: int
    scoring: int
    cached_tokens: int
    """Prompt tokens found in the cache, at every admission."""
    computed_tokens: int
    """Prompt and choice tokens whose KV was computed, recomputation after a retract included."""
    forced_tokens: int
    output_tokens: int
    retractions: int
    new_token_ratio: float
    kv: KvStatistics

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that came from the cache; 0.0 before the first."""
        total = self.cached_tokens + self.computed_tokens
        return self.cached_tokens / total if total else 0.0


class Scheduler:
    """Decides what runs in each step; owns every request from its message to its terminal output.

    Call `step`, run the plan, call `commit` with the result (of no rows, if the plan has none), and so on. Messages may
    come through `receive` at any time, while a plan is in flight as well; what they end at once is
    delivered by the next `commit`. One thread owns it.

    Args:
        kv: the memory; its rows must reach to the context.
        visible_bytes: the bytes each token adds to the text, for stop strings.
    """

    def __init__(self, config: SchedulerConfig, kv: KvManager, visible_bytes: VisibleBytes) -> None:
        chunk = config.chunked_prefill_size
        if chunk is not None and chunk < kv.page_size:
            raise RequestError(
                f"configuring the scheduler: chunked_prefill_size={chunk}, expected at least one page of {kv.page_size}"
            )
        assert kv.max_len >= config.context_length, f"rows of {kv.max_len} tokens, a context of {config.context_length}"
        self.config = config
        self.kv = kv
        self._ratio = NewTokenRatio(config.schedule_conservativeness)
        self._queue = WaitingQueue(config.ageing_slack)
        self._live = LiveReqs(kv, self._queue, self._ratio)
        self._intake = Intake(config, kv, visible_bytes)
        self._prefill = PrefillPlanner(config, kv, self._queue, self._live, self._ratio)
        self._decode = DecodePlanner(kv, self._live)
        self._commit = Committer(kv, self._live)
        self._reqs: dict[str, Req] = {}
        self._in_flight: ScheduleBatch | None = None
        self._step = 0
        self._num_arrived = 0

    @property
    def has_work(self) -> bool:
        """A step would run rows or its commit deliver outputs; requests that wait for a grammar are no work."""
        return bool(len(self._queue) or len(self._live) or self._in_flight or self._commit.outputs)

    def is_known(self, rid: str) -> bool:
        """A request of this id is in the scheduler."""
        return rid in self._reqs

    def state_of(self, rid: str) -> ReqState | None:
        """Where a request is; None: it ended or never came."""
        req = self._reqs.get(rid)
        return req.state if req is not None else None

    def receive(self, messages: Sequence[Message]) -> None:
        """Take messages in order.

        Raises:
            RequestError: a new request has the id of one that has not ended; then none of the messages is taken.
        """
        new = [message.rid for message in messages if isinstance(message, AddReq)]
        taken = sorted({rid for rid in new if rid in self._reqs or new.count(rid) > 1}) if new else []
        if taken:
            raise RequestError(f"adding requests: ids {taken} are in use, expected ids that no live request has")
        for message in messages:
            match message:
                case AddReq():
                    self._add(message)
                case AbortReq(rid=rid, error=error):
                    self._abort(rid, error or CancelledError(f"request {rid!r} was aborted"))
                case GrammarReady():
                    self._grammar_ready(message)
                case EndLease(lease=lease):
                    self.kv.end_lease(lease)
                case SetNextUse(lease=lease, next_use=next_use):
                    self.kv.set_next_use(lease, next_use)

    def step(self, messages: Sequence[Message] = ()) -> Plan:
        """Take messages and plan the next forward; the plan must be committed before the next step.

        Raises:
            RequestError: see `receive`; then nothing is planned.
        """
        assert self._in_flight is None, f"step {self._step} is not committed yet"
        self.receive(messages)
        self._step += 1
        self.kv.begin_plan()
        if not len(self._live):
            self._ratio.reset()
        batch = self._make_batch()
        while not batch.rows and (len(self._live) or len(self._queue)):
            self._make_room()
            batch = self._make_batch()
        self._in_flight = batch
        return batch.to_plan()

    def commit(self, result: StepResult) -> list[ReqOutput]:
        """Take the result of the last plan; returns what changed for requests, since the last commit and by it."""
        batch = self._in_flight
        assert batch is not None, f"result of step {result.step} with no plan in flight"
        assert result.step == batch.step, f"result of step {result.step}, the plan in flight is step {batch.step}"
        assert len(result.rows) == len(batch.rows), f"{len(result.rows)} results for {len(batch.rows)} rows"
        self._in_flight = None
        self._commit.apply(batch, result.rows)
        outputs, self._commit.outputs = self._commit.outputs, []
        for output in outputs:
            if output.finished is not None:
                self._reqs.pop(output.rid, None)
        return outputs

    def retract(self, rid: str) -> bool:
        """Take a request off the memory and back to the queue; False: it holds none, or has a row in flight."""
        req = self._reqs.get(rid)
        if req is None or req.hold is None or (self._in_flight is not None and rid in self._in_flight.rids):
            return False
        self._live.retract(req)
        return True

    def flush_cache(self) -> bool:
        """Forget every cached prefix; False, and nothing is done, while a request holds memory."""
        return self.kv.flush()

    def statistics(self) -> SchedulerStatistics:
        """Counts now and since the start."""
        live, kv = self._live, self.kv.statistics()
        return SchedulerStatistics(
            step=self._step,
            waiting=len(self._queue),
            waiting_for_grammar=len(self._queue.waiting_for_grammar),
            prefilling=len(live.fresh) + (live.prefilling is not None),
            running=len(live.running) + len(live.completed),
            scoring=len(live.scoring),
            cached_tokens=kv.cached_tokens,
            computed_tokens=self._commit.num_computed,
            forced_tokens=0,
            output_tokens=self._commit.num_output,
            retractions=live.num_retracts,
            new_token_ratio=self._ratio.value,
            kv=kv,
        )

    def check_invariants(self) -> None:
        """Assert that places, states, cursors and the memory's ledger agree; for tests, costs a walk over everything."""
        live = self._live
        self.kv.check_ledger(list(live.holds()))
        places = [*live, *self._queue, *self._queue.waiting_for_grammar]
        unfinished = {rid for rid, req in self._reqs.items() if req.finished_reason is None}
        assert len(places) == len({id(req) for req in places}), "a request is in two places"
        assert {req.rid for req in places} == unfinished, "requests in places are not the unfinished ones"
        for req in (*self._queue, *self._queue.waiting_for_grammar):
            assert req.hold is None, f"request {req.rid!r} waits and holds memory"
            assert req.score is None or not req.score.holds, f"request {req.rid!r} waits and holds edges"
        for req in (*live.running, *live.completed):
            assert req.state is ReqState.RUNNING, (
                f"request {req.rid!r} is among the running ones, its state is {req.state}"
            )
        for req in live.scoring:
            assert req.state is ReqState.SCORING, (
                f"request {req.rid!r} is among the scoring ones, its state is {req.state}"
            )
        assert self._in_flight is not None or not live.fresh, "a prefill is fresh outside a step"
        for req in places:
            hold = req.hold
            assert req.sent_tokens == len(req.output_ids) == req.seq_len - req.prompt_len == req.text.num_tokens
            assert hold is None or hold.committed_len <= min(hold.allocated_len, req.seq_len)

    def _add(self, add: AddReq) -> None:
        self._num_arrived += 1
        try:
            req = self._intake.open(add, (self._step, not add.is_continuing, self._num_arrived))
        except RequestError as error:
            self._refuse(add, error)
            return
        self._reqs[add.rid] = req
        self._queue.add(req)

    def _refuse(self, add: AddReq, error: SglangLiteError) -> None:
        usage = Usage(len(add.input_ids), 0, 0, 0)
        self._commit.outputs.append(ReqOutput(add.rid, finished=FinishReason("abort", error=error), usage=usage))

    def _abort(self, rid: str, error: SglangLiteError) -> None:
        req = self._reqs.get(rid)
        if req is None or req.finished_reason is not None or req.end_reason is not None:
            return
        reason = FinishReason("abort", error=error)
        if self._in_flight is not None and rid in self._in_flight.rids:
            req.end_reason = reason
            return
        if req.hold is None:
            self._queue.remove(req)
        self._commit.finish(req, reason)

    def _grammar_ready(self, message: GrammarReady) -> None:
        req = self._reqs.get(message.rid)
        if req is None or not req.waits_for_grammar or req.finished_reason is not None:
            return
        if message.grammar is None:
            self._queue.remove(req)
            error = message.error or RequestError(f"request {message.rid!r}: its grammar could not be compiled")
            self._commit.finish(req, FinishReason("abort", error=error))
            return
        req.grammar = message.grammar
        req.waits_for_grammar = False
        self._queue.add(req)

    def _make_batch(self) -> ScheduleBatch:
        """The rows that fit now, by the order of choice."""
        live, batching = self._live, self.config.batching
        batch = ScheduleBatch(self._step, self.kv.page_size)
        grown: list[Req] | None = None

        def prefill(joined: Sequence[Req]) -> list[Req]:
            nonlocal grown
            live.running, live.completed = list(joined), []
            if batching == "decode-first":
                grown = self._decode.grow(batch.rids)
            num_decode = 0 if batching == "prefill-first" else len(live.running)
            self._prefill.add_rows(batch, live.running, num_decode)
            return [row.req for row in batch.rows]

        choice = choose_next(batching, live.running, live.completed, prefill)
        if choice.decode:
            self._decode.add_rows(batch, self._decode.grow(batch.rids) if grown is None else grown)
        return batch

    def _make_room(self) -> None:
        """Nothing can run: one request gives way to the oldest, or the only one cannot go on at all."""
        live = sorted(self._live, key=lambda req: req.order)
        if len(live) > 1:
            self._live.retract(live[-1])
            return
        req = live[0] if live else next(iter(self._queue))
        if req.hold is None:
            self._queue.remove(req)
        total = self.kv.total_tokens
        self._commit.fail(
            req,
            KvOutOfMemoryError(
                f"running request {req.rid!r}: its {req.seq_len} tokens need one more KV page, the whole pool has {total} "
                "slots; ask for fewer tokens or enlarge the pool"
            ),
        )
