"""What a step's results change: the only place where output tokens are taken and requests end.

It moves requests between their places and lets go of their memory; it plans nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.batch import BatchRow, RowKind, ScheduleBatch
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.messages import NO_TOKEN, FinishReason, ReqOutput, TokenLogprob
from sglang_lite.runtime.scheduler.plan import RowResult, TargetResult
from sglang_lite.runtime.scheduler.req import Req, ReqState


class News(NamedTuple):
    """What one commit adds to a request's output."""

    ids: tuple[int, ...] = ()
    data: bytes = b""
    logprobs: tuple[TokenLogprob, ...] = ()


NO_NEWS = News()


class Committer:
    """Applies results row by row; owns the outputs that wait to be delivered and the totals.

    Attributes:
        outputs: not delivered yet.
        num_computed, num_output: tokens over all requests so far.
        num_dropped: rows whose request had ended before they were committed.

    """

    def __init__(self, kv: KvManager, live: LiveReqs) -> None:
        self.outputs: list[ReqOutput] = []
        self.num_computed = 0
        self.num_output = 0
        self.num_dropped = 0
        self._kv = kv
        self._live = live

    def apply(self, batch: ScheduleBatch, results: Sequence[RowResult]) -> None:
        """Take the results of a batch, one a row, in its order; those of requests that have ended are dropped."""
        live: list[tuple[BatchRow, RowResult]] = []
        for row, result in zip(batch.rows, results, strict=True):
            if not row.is_live:
                self.num_dropped += 1
                continue
            live.append((row, result))
            self._kv.commit(row.hold, row.plan.seq_len)
            if row.plan.sample is not None:
                row.req.num_pending -= 1
            if row.kind is not RowKind.DECODE:
                row.req.computed_tokens += row.plan.extend_len
                self.num_computed += row.plan.extend_len
        for row, result in live:
            if row.req.finished_reason is None:
                self._apply_row(row, result)
        if self._live.scoring:
            for req in [req for req in self._live.scoring if batch.has(req)]:
                self._settle_edges(req)

    def finish(self, req: Req, reason: FinishReason, news: News = NO_NEWS) -> None:
        """End a request wherever it is outside the queue: its memory is free, its one terminal message is due."""
        assert req.finished_reason is None, f"request {req.rid!r} ends twice, first by {req.finished_reason}"
        if req.hold is not None:
            self._live.drop(req, keep_prefix=reason.error is None)
        req.finished_reason = reason
        self._emit(req, news)

    def fail(self, req: Req, error: ExecutionError) -> None:
        """End a request with an error of its own; text that was held back for a stop string is shown."""
        req.text.flush()
        self.finish(req, FinishReason("abort", error=error))

    def _apply_row(self, row: BatchRow, result: RowResult) -> None:
        req = row.req
        if req.end_reason is not None:
            self.finish(req, req.end_reason)
        elif result.error is not None:
            self.fail(req, result.error)
        elif row.kind is RowKind.EDGE:
            assert req.score is not None, f"request {req.rid!r} has no choices"
            assert row.edge is not None, f"an edge row of request {req.rid!r} has no edge"
            req.score.in_flight.discard(row.edge)
            req.score.tree.store(row.edge, result.targets)
        elif row.kind is RowKind.DECODE:
            self._take_token(req, result)
        else:
            self._apply_extend(row, result)

    def _apply_extend(self, row: BatchRow, result: RowResult) -> None:
        req, hold = row.req, row.hold
        _store_input_logprobs(row, result.targets[: row.num_input_logprobs])
        self._kv.checkpoint(hold, req.ids)
        if hold.committed_len < req.fill_len:
            return
        self._live.prefilled(req)
        after_prompt = result.targets[row.num_input_logprobs :]
        if req.score is not None:
            req.score.tree.store(None, after_prompt)
            self._settle_edges(req)
        elif req.samples:
            self._take_token(req, result)
        else:
            self.finish(req, FinishReason("length"), News(logprobs=_without_token(req, after_prompt)))

    def _take_token(self, req: Req, result: RowResult) -> None:
        token_id = result.token_id
        assert token_id is not None, f"request {req.rid!r} has a row that samples and got no token"
        before = len(req.output_ids)
        accepted = req.text.accept((token_id,), req.grammar)
        new_ids = (token_id,)[: accepted.num_tokens]
        req.append(new_ids)
        self.num_output += len(new_ids)
        logprobs: tuple[TokenLogprob, ...] = ()
        if req.logprob is not None:
            logprobs = (TokenLogprob(token_id, result.logprob, result.top, result.asked),)[: len(new_ids)]
        assert req.sent_tokens == before, f"request {req.rid!r} sent {req.sent_tokens} of {before} tokens"
        req.sent_tokens += len(new_ids)
        news = News(new_ids, accepted.new_bytes, logprobs)
        if accepted.reason is not None:
            self.finish(req, accepted.reason, news)
        else:
            self._emit(req, news)

    def _settle_edges(self, req: Req) -> None:
        """Let go of edges that nothing to come needs; end the request when nothing is to come."""
        score = req.score
        assert score is not None and req.state is ReqState.SCORING, f"request {req.rid!r} is {req.state}, not scoring"
        self._live.release_edges(req, score.idle_edges)
        if score.is_done:
            self.finish(req, FinishReason("stop"))

    def _emit(self, req: Req, news: News) -> None:
        """Queue an output: what is new, with the first one the prompt's log-probabilities, with the last one the sums."""
        reason = req.finished_reason
        with_input = req.owes_input_logprobs
        if reason is None and not with_input:
            self.outputs.append(ReqOutput(req.rid, news.ids, news.data, req.text.text_end, news.logprobs))
            return
        req.has_sent_input_logprobs |= with_input
        is_scored = req.score is not None and reason is not None and reason.kind == "stop"
        self.outputs.append(
            ReqOutput(
                rid=req.rid,
                new_ids=news.ids,
                new_bytes=news.data,
                text_end=req.text.text_end,
                logprobs=news.logprobs,
                input_logprobs=tuple(req.input_logprobs) if with_input else None,
                scores=req.score.tree.scores() if req.score is not None and is_scored else None,
                finished=reason,
                kept_len=req.text.kept_len if reason is not None else 0,
                usage=req.usage() if reason is not None else None,
            )
        )


def _without_token(req: Req, results: Sequence[TargetResult]) -> tuple[TokenLogprob, ...]:
    """The distribution after the prompt of a request that generates nothing, if it asked for more than the token's own."""
    if not results or req.logprob is None:
        return ()
    asked = tuple(zip(req.logprob.token_ids, results[0].logprobs, strict=True))
    return (TokenLogprob(NO_TOKEN, None, results[0].top, asked),)


def _store_input_logprobs(row: BatchRow, results: Sequence[TargetResult]) -> None:
    """Keep the log-probabilities of prompt positions; the first token of a prompt has none."""
    req = row.req
    if req.next_input_logprob is None:
        return
    prompt = req.add.input_ids
    if req.next_input_logprob == 0:
        req.input_logprobs.append(TokenLogprob(prompt[0], None))
    for target, result in zip(row.plan.targets, results, strict=False):
        token_ids = target.token_ids
        asked = tuple(zip(token_ids[1:], result.logprobs[1:], strict=True))
        req.input_logprobs.append(TokenLogprob(token_ids[0], result.logprobs[0], result.top, asked))
