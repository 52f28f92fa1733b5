"""What a step's results change: the only place where output tokens are taken and requests end.

It moves requests between their places and lets go of their memory; it plans nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.batch import BatchRow, RowKind, ScheduleBatch
from sglang_lite.runtime.scheduler.draft_guesses import DraftGuesser
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.messages import NO_TOKEN, FinishReason, LenientCursor, ReqOutput, TokenLogprob
from sglang_lite.runtime.scheduler.plan import KeptDraft, RowResult, TargetResult
from sglang_lite.runtime.scheduler.req import Req, ReqState


class News(NamedTuple):
    """What one commit adds to a request's output."""

    ids: tuple[int, ...] = ()
    data: bytes = b""
    logprobs: tuple[TokenLogprob, ...] = ()
    num_forced: int = 0


NO_NEWS = News()


class Committer:
    """Applies results row by row; owns the outputs that wait to be delivered and the totals.

    Attributes:
        outputs: not delivered yet.
        num_computed, num_output, num_forced, num_rejected: tokens over all requests so far.
        num_speculated, num_missed: guesses from earlier text or of a draft model that stood, and that did not.
        num_guessed_rows: rows that carried such.
        num_dropped: rows whose request had ended before they were committed.

    """

    def __init__(self, kv: KvManager, live: LiveReqs) -> None:
        self.outputs: list[ReqOutput] = []
        self.num_computed = 0
        self.num_output = 0
        self.num_forced = 0
        self.num_rejected = 0
        self.num_speculated = 0
        self.num_missed = 0
        self.num_guessed_rows = 0
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
            num_guessed = len(row.plan.drafts)
            self._kv.commit(row.hold, row.plan.seq_len - num_guessed)
            if row.plan.sample is not None:
                row.req.num_pending -= 1 + num_guessed
                row.req.num_drafted -= num_guessed
                row.req.planned_len -= num_guessed - len(result.kept)
            if row.kind is not RowKind.DECODE:
                row.req.counts.computed_tokens += row.plan.extend_len
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
            req.counts.known_len = req.hold.committed_len
            self._live.drop(req, keep_prefix=reason.error is None)
        req.finished_reason = reason
        self._emit(req, news)

    def close(self, req: Req) -> bool:
        """Take the tokens that are forced up to the request's end, if they are: nothing is computed for them.

        The branch's next request computes them together with the text that follows. Not where their log-probabilities, or
        those of the prompt, are asked for.
        """
        if not req.samples or req.logprob is not None:
            return False
        rules = req.text.rules
        run = req.jump.closing_run(req.grammar, req.add.input_ids, req.tokens_left, rules.vocab_size)
        if not run:
            return False
        accepted = req.text.accept(run, req.grammar)
        assert accepted.reason is not None, f"request {req.rid!r} is forced to its end by {run} and did not end"
        new_ids = tuple(run[: accepted.num_tokens])
        req.append(new_ids)
        req.sent_tokens += len(new_ids)
        req.jump.num_kept += len(new_ids)
        self.num_forced += len(new_ids)
        self.num_output += len(new_ids)
        self.finish(req, accepted.reason, News(new_ids, accepted.new_bytes, num_forced=len(new_ids)))
        return True

    def fail(self, req: Req, error: ExecutionError, news: News = NO_NEWS) -> None:
        """End a request with an error of its own; text that was held back for a stop string is shown."""
        req.text.flush()
        self.finish(req, FinishReason("abort", error=error), news)

    def _apply_row(self, row: BatchRow, result: RowResult) -> None:
        req = row.req
        if req.end_reason is not None:
            self.finish(req, req.end_reason)
        elif result.error is not None and not result.kept:
            self.fail(req, result.error)
        elif row.kind is RowKind.EDGE:
            assert req.score is not None, f"request {req.rid!r} has no choices"
            assert row.edge is not None, f"an edge row of request {req.rid!r} has no edge"
            req.score.in_flight.discard(row.edge)
            req.score.tree.store(row.edge, result.targets)
        elif row.kind is RowKind.DECODE:
            self._take_tokens(row, result)
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
            self._take_tokens(row, result)
        else:
            self.finish(req, FinishReason("length"), News(logprobs=_without_token(req, after_prompt)))

    def _take_tokens(self, row: BatchRow, result: RowResult) -> None:
        """Take the guesses that stand and the drawn token; the KV of the others is written over."""
        req = row.req
        drawn: list[tuple[int, KeptDraft | RowResult]] = [(kept.token_id, kept) for kept in result.kept]
        assert result.token_id is not None or result.error is not None, (
            f"request {req.rid!r} has a row that samples and got no token"
        )
        if result.token_id is not None:
            drawn.append((result.token_id, result))
        before = len(req.output_ids)
        accepted = req.text.accept([token for token, _ in drawn], req.grammar)
        drawn = drawn[: accepted.num_tokens]
        new_ids = tuple(token for token, _ in drawn)
        req.append(new_ids)
        logprobs: tuple[TokenLogprob, ...] = ()
        if req.logprob is not None:
            logprobs = tuple(TokenLogprob(token, got.logprob, got.top, got.asked) for token, got in drawn)
        assert req.sent_tokens == before, f"request {req.rid!r} sent {req.sent_tokens} of {before} tokens"
        req.sent_tokens += len(new_ids)
        num_forced = self._count_forced(row, result, len(new_ids))
        if num_kept := min(len(result.kept), len(new_ids)):
            self._kv.commit(row.hold, row.plan.prefix_len + 1 + num_kept)
        news = News(new_ids, accepted.new_bytes, logprobs, num_forced)
        if accepted.reason is not None:
            self.finish(req, accepted.reason, news)
        elif result.error is not None:
            self.fail(req, result.error, news)
        else:
            if isinstance(req.jump.guesser, DraftGuesser):
                req.jump.guesser.offer(req.seq_len, result.guesses)
            self._emit(req, news)
            self.close(req)

    def _count_forced(self, row: BatchRow, result: RowResult, num_taken: int) -> int:
        """How many of the tokens taken were forced; updates the counts."""
        jump, num_kept = row.req.jump, len(result.kept)
        if row.plan.drafts and jump.is_guess and jump.guesser is not None:
            jump.guesser.note(len(row.plan.drafts), num_kept)
            self.num_output += num_taken
            self.num_speculated += num_kept
            self.num_missed += len(row.plan.drafts) - num_kept
            self.num_guessed_rows += 1
            return 0
        is_last_given = row.plan.sample is not None and row.plan.sample.given is not None
        is_whole = num_kept == len(row.plan.drafts) and result.token_id is not None
        num_forced = min(num_kept + (is_last_given and is_whole), num_taken)
        if row.plan.drafts:
            jump.note(len(row.plan.drafts), num_kept)
        jump.num_kept += num_forced
        self.num_forced += num_forced
        self.num_rejected += len(row.plan.drafts) - num_kept
        self.num_output += num_taken
        return num_forced

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
            output = ReqOutput(
                req.rid, news.ids, news.data, req.text.text_end, news.logprobs, num_forced=news.num_forced
            )
            self.outputs.append(output)
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
                num_forced=news.num_forced,
                notes=_notes_on(req),
            )
        )


def _notes_on(req: Req) -> tuple[str, ...]:
    """At the end of a request that was answered: what of its constraint was not enforced."""
    reason = req.finished_reason
    if not isinstance(req.grammar, LenientCursor) or reason is None or reason.kind == "abort":
        return ()
    return req.grammar.notes_on(req.text.shown)


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
