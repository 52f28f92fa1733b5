"""Scheduler: messages in, one plan out; results in, outputs out. It runs nothing, reads no clock, does no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sglang_lite.errors import CancelledError, KvOutOfMemoryError, QueueFullError, RequestError, SglangLiteError
from sglang_lite.runtime.memory.kv import KvManager
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
from sglang_lite.runtime.scheduler.places import check_places
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.policy import choose_next
from sglang_lite.runtime.scheduler.prefill import PrefillPlanner
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req, ReqState
from sglang_lite.runtime.scheduler.statistics import SchedulerStatistics


class Scheduler:
    """Decides what runs in each step; owns every request from its message to its terminal output.

    Call `step`, run the plan, call `commit` with the result (of no rows, if the plan has none), and so on; with overlap
    the next `step` may come before that `commit`, and the plan is `resolve`d after it (see `loop.py`). Messages
    may come through `receive` at any time, while a plan is in flight as well; what they end at once is delivered by
    the next `commit`. One thread owns it.

    Args:
        kv: the memory; its rows must reach to the context.
        visible_bytes: the bytes each of the model's tokens adds to the text, for stop strings.
    """

    def __init__(self, config: SchedulerConfig, kv: KvManager, visible_bytes: VisibleBytes) -> None:
        chunk = config.chunked_prefill_size
        if chunk is not None and chunk < kv.page_size:
            raise RequestError(
                f"configuring the scheduler: chunked_prefill_size={chunk}, expected at least one page of {kv.page_size}"
            )
        assert kv.max_len >= config.context_length, f"rows of {kv.max_len} tokens, a context of {config.context_length}"
        num_texts = len(visible_bytes)
        assert num_texts >= config.vocab_size, f"texts of {num_texts} tokens, a model of {config.vocab_size}"
        self.config = config
        self.kv = kv
        self._ratio = NewTokenRatio(config.schedule_conservativeness)
        self._queue = WaitingQueue(config.ageing_tokens)
        self._live = LiveReqs(kv, self._queue, self._ratio)
        self._intake = Intake(config, kv, visible_bytes)
        self._prefill = PrefillPlanner(config, kv, self._queue, self._live, self._ratio)
        self._decode = DecodePlanner(kv, self._live, launch_ahead=config.launch_ahead)
        self._commit = Committer(kv, self._live)
        self._reqs: dict[str, Req] = {}
        self._in_flight: deque[ScheduleBatch] = deque()
        self._most_in_flight = 1 if config.disable_overlap_schedule else 2
        self._step = 0
        self._num_arrived = 0
        self._num_refused = 0
        self.first_admitted: list[str] = []
        """Requests whose first row is in the last plan."""

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
        """Take messages and plan the next forward.

        With overlap, the plan before may still be in flight. Then nobody is retracted and nobody fails for lack of
        memory, since its results may make room: where only that would help, the plan has no rows.

        Raises:
            RequestError: see `receive`; then nothing is planned.
        """
        assert len(self._in_flight) < self._most_in_flight, f"step {self._in_flight[0].step} is not committed yet"
        self.receive(messages)
        self._step += 1
        self.kv.begin_plan()
        if not len(self._live):
            self._ratio.reset()
        retracts = self._live.num_retracts
        batch = self._make_batch()
        while not batch.rows and not self._in_flight and (len(self._live) or len(self._queue)):
            # Where planning itself has retracted somebody, there is room already.
            if self._live.num_retracts == retracts:
                self._make_room()
            retracts = self._live.num_retracts
            batch = self._make_batch()
        self._queue.clock += batch.num_tokens
        self.first_admitted = batch.first_admitted
        self._in_flight.append(batch)
        return batch.to_plan()

    def resolve(self, plan: Plan) -> Plan:
        """The last plan as it can be run, the one before it being committed: every token known, and nothing asked for
        in rows whose request has ended meanwhile. Such a row still runs, and is dropped at its commit. With `launch_ahead` the
        plan has been launched: what its rows compute stays, only how they sample is told now.
        """
        assert len(self._in_flight) == 1, f"plan {plan.step} is launched with {len(self._in_flight)} plans in flight"
        batch = self._in_flight[0]
        assert plan.step == batch.step, f"plan {plan.step} is launched, in flight is step {batch.step}"
        return batch.resolve(plan, self._decode.run_of, is_launched=self.config.launch_ahead)

    def commit(self, result: StepResult) -> list[ReqOutput]:
        """Take the result of the oldest plan in flight; returns what changed for requests, since the last commit and by it."""
        assert self._in_flight, f"result of step {result.step} with no plan in flight"
        batch = self._in_flight[0]
        assert result.step == batch.step, f"result of step {result.step}, the plan in flight is step {batch.step}"
        assert len(result.rows) == len(batch.rows), f"{len(result.rows)} results for {len(batch.rows)} rows"
        self._in_flight.popleft()
        self._commit.apply(batch, result.rows)
        outputs, self._commit.outputs = self._commit.outputs, []
        for output in outputs:
            if output.finished is not None:
                self._reqs.pop(output.rid, None)
        return outputs

    def retract(self, rid: str) -> bool:
        """Take a request off the memory and back to the queue; False: it holds none, or has a row in flight."""
        req = self._reqs.get(rid)
        if req is None or req.hold is None or self._is_in_flight(req):
            return False
        self._live.retract(req)
        return True

    def flush_cache(self) -> bool:
        """Forget every cached prefix; False, and nothing is done, while a request holds memory."""
        return self.kv.flush()

    def statistics(self) -> SchedulerStatistics:
        """Counts now and since the start."""
        live, kv, commit = self._live, self.kv.statistics(), self._commit
        return SchedulerStatistics(
            step=self._step,
            waiting=len(self._queue),
            waiting_for_grammar=len(self._queue.waiting_for_grammar),
            prefilling=len(live.fresh) + (live.prefilling is not None),
            running=len(live.running) + len(live.completed),
            scoring=len(live.scoring),
            cached_tokens=kv.cached_tokens,
            computed_tokens=commit.num_computed,
            forced_tokens=commit.num_forced,
            rejected_tokens=commit.num_rejected,
            speculated_tokens=commit.num_speculated,
            missed_tokens=commit.num_missed,
            speculated_rows=commit.num_guessed_rows,
            output_tokens=commit.num_output,
            retractions=live.num_retracts,
            refused=self._num_refused,
            dropped_rows=commit.num_dropped,
            new_token_ratio=self._ratio.value,
            queue=self._queue.statistics(),
            kv=kv,
        )

    def places(self) -> list[tuple[str, Req]]:
        """Every unfinished request with the name of its place, those with memory first; to look at, not to change."""
        live, queue = self._live, self._queue
        found = [("prefilling", req) for req in (live.prefilling,) if req is not None]
        for place in ("fresh", "completed", "running", "scoring"):
            reqs: list[Req] = getattr(live, place)
            found += [(place, req) for req in reqs]
        found += [("waiting", req) for req in queue]
        return found + [("waiting for grammar", req) for req in queue.waiting_for_grammar]

    def check_invariants(self) -> None:
        """Assert that places, states, cursors and the memory's ledger agree; for tests, costs a walk over everything."""
        self.kv.check_ledger(list(self._live.holds()))
        check_places(self._reqs, self._queue, self._live, self._in_flight)

    def _add(self, add: AddReq) -> None:
        self._num_arrived += 1
        try:
            req = self._intake.open(add, (self._step, not add.is_continuing, self._num_arrived))
        except RequestError as error:
            self._refuse(add, error)
            return
        if self._commit.close(req):
            self._reqs[add.rid] = req
            return
        if not self._has_place(req):
            error = QueueFullError(
                f"adding request {add.rid!r}: {self._queue.num_queued} requests wait already, max_queued_requests="
                f"{self.config.max_queued_requests}; try again later"
            )
            self._num_refused += 1
            self._refuse(add, error)
            return
        self._reqs[add.rid] = req
        self._queue.add(req)

    def _has_place(self, req: Req) -> bool:
        """The queue takes one more, or one of a lower priority that has never run gives up its place."""
        limit = self.config.max_queued_requests
        if limit is None or self._queue.num_queued < limit:
            return True
        last = self._queue.last_below(req.rank)
        if last is None:
            return False
        self._queue.remove(last)
        self._num_refused += 1
        error = QueueFullError(
            f"request {last.rid!r} waited: the queue is full (max_queued_requests={limit}) and request {req.rid!r} has a "
            "higher priority; try again later"
        )
        self._commit.finish(last, FinishReason("abort", error=error))
        return True

    def _is_in_flight(self, req: Req) -> bool:
        return any(batch.has(req) for batch in self._in_flight)

    def _refuse(self, add: AddReq, error: SglangLiteError) -> None:
        usage = Usage(len(add.input_ids), 0, 0, 0)
        self._commit.outputs.append(ReqOutput(add.rid, finished=FinishReason("abort", error=error), usage=usage))

    def _abort(self, rid: str, error: SglangLiteError) -> None:
        req = self._reqs.get(rid)
        if req is None or req.finished_reason is not None or req.end_reason is not None:
            return
        reason = FinishReason("abort", error=error)
        if self._is_in_flight(req):
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
        self._queue.remove(req)
        req.grammar = message.grammar
        req.waits_for_grammar = False
        if not self._commit.close(req):
            self._queue.add(req)

    def _make_batch(self) -> ScheduleBatch:
        """The rows that fit now, by the order of choice."""
        live, batching = self._live, self.config.batching
        batch = ScheduleBatch(self._step, self.kv.page_size)
        ahead = self._in_flight[0] if self._in_flight else None
        grown: list[Req] | None = None
        if ahead is not None:
            live.join_ahead()

        def prefill(joined: Sequence[Req]) -> list[Req]:
            nonlocal grown
            live.running, live.completed = list(joined), []
            if batching == "decode-first":
                grown = self._decode.grow(batch.reqs, may_retract=ahead is None)
            num_decode = 0 if batching == "prefill-first" else len(live.running)
            self._prefill.add_rows(batch, live.running, num_decode, ahead)
            return [row.req for row in batch.rows]

        choice = choose_next(batching, live.running, live.completed, prefill)
        if choice.decode:
            if grown is None:
                grown = self._decode.grow(batch.reqs, may_retract=ahead is None)
            self._decode.add_rows(batch, grown or [])
        return batch

    def _make_room(self) -> None:
        """Nothing can run: one request gives way to the first, or the only one cannot go on at all."""
        live = sorted(self._live, key=lambda req: (req.rank, req.order))
        if len(live) > 1:
            self._live.retract(live[-1])
            return
        req = live[0] if live else self._prefill.first_in_line(self._step)
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
