"""ScheduleBatch: the rows of one step, each with the request it belongs to; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.hold import PageCopy
from sglang_lite.runtime.memory.kv import KvHold
from sglang_lite.runtime.scheduler.draft_guesses import DraftGuesser
from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, ForwardMode, LogprobTarget, Plan, RowPlan, SampleSpec
from sglang_lite.runtime.scheduler.req import Req


class RowKind(Enum):
    """What a row is for."""

    EXTEND = "extend"
    DECODE = "decode"
    EDGE = "edge"


class BatchRow(NamedTuple):
    """One row: the request, the hold it writes to, what the runner is told.

    `num_input_logprobs`: how many of the plan's targets are prompt positions; they come first. `edge`: of a scoring row.
    """

    req: Req
    hold: KvHold
    plan: RowPlan
    kind: RowKind
    num_input_logprobs: int = 0
    edge: int | None = None

    @property
    def is_live(self) -> bool:
        """The hold is still the request's; if not, the request has ended and the row's result is nobody's."""
        if self.edge is None:
            return self.req.hold is self.hold
        return self.req.score is not None and self.req.score.holds.get(self.edge) is self.hold


class ScheduleBatch:
    """The rows of step `step` as one table: row i of the plan is `rows[i]`, whatever is added.

    A row may be added while the step before is in flight: it starts where that one's row will end
    (`Req.planned_len`), and a decode row's token may be the one that it will give.
    """

    def __init__(self, step: int, page_size: int) -> None:
        self.step = step
        self.rows: list[BatchRow] = []
        self.copies: list[PageCopy] = []
        self.first_admitted: list[str] = []
        """Requests that have their first row here."""
        self.reqs: dict[str, Req] = {}
        self.num_tokens = 0
        self._page_size = page_size

    def add_extend(self, req: Req, end: int) -> None:
        """Compute the request's tokens from what is committed up to `end`; the last of them samples, or takes what is forced."""
        hold = _hold_of(req)
        start = req.planned_len
        assert start < end <= req.seq_len, f"request {req.rid!r} extends from {start} to {end} of {req.seq_len} tokens"
        run = req.jump.given_run(req.grammar, req.add.input_ids) if end == req.seq_len and not req.num_pending else ()
        req.jump.is_due = min(len(run), req.tokens_left) > 1
        targets = _input_targets(req, start, end)
        num_input = len(targets)
        is_last = end == req.seq_len
        if is_last and req.score is not None:
            targets.append(LogprobTarget(end - start - 1, req.score.tree.first_tokens(None)))
        elif is_last and not req.samples and req.logprob is not None and (req.logprob.top_num or req.logprob.token_ids):
            targets.append(LogprobTarget(end - start - 1, req.logprob.token_ids, req.logprob.top_num))
        num_guesses = num_wanted(req) if is_last and req.samples else 0
        plan = RowPlan(
            rid=req.rid,
            input_ids=tuple(req.ids[start:end].tolist()),
            prefix_len=start,
            pages=self._pages(hold, end, num_guesses),
            sample=_sample_spec(req, req.known_len, given=run[0] if run else None) if is_last and req.samples else None,
            targets=tuple(targets),
            num_guesses=num_guesses,
        )
        self._add(BatchRow(req, hold, plan, RowKind.EXTEND, num_input))
        req.planned_len = end
        req.num_pending += plan.sample is not None

    def add_decode(self, req: Req, run: Sequence[int] = ()) -> None:
        """Compute the request's last token, or the one that is in flight, and sample the next.

        `run`: tokens that a constraint forces then; as many as the request's pages hold are computed as guesses. None while
        a token is in flight.
        """
        hold = _hold_of(req)
        start, end = req.planned_len, req.known_len
        assert start == end - 1, f"request {req.rid!r} decodes with {start} of {end} planned"
        if req.num_pending:
            plan = RowPlan(req.rid, (FUTURE_TOKEN,), start, self._pages(hold, end), _sample_spec(req, end), (), True)
        else:
            plan = self._decode_row(req, hold, run)
            req.jump.is_due = False
        self._add(BatchRow(req, hold, plan, RowKind.DECODE))
        req.planned_len = end + len(plan.drafts)
        req.num_pending += 1 + len(plan.drafts)
        req.num_drafted += len(plan.drafts)

    def add_edge(self, req: Req, edge: int, hold: KvHold) -> None:
        """Compute an edge of the request's choices, and the tokens before it in its first page that are not there."""
        assert req.score is not None, f"request {req.rid!r} has no choices"
        tree = req.score.tree
        start = hold.committed_len
        at_len = req.prompt_len + tree.edges[edge].start
        before: tuple[int, ...] = ()
        if start < at_len:
            known = (*req.add.input_ids, *(t for i in tree.path(edge)[:-1] for t in tree.edges[i].tokens))
            before = known[start:at_len]
        ids = (*before, *tree.edges[edge].tokens[: tree.edges[edge].row_len])
        plan = RowPlan(
            req.rid, ids, start, self._pages(hold, start + len(ids)), targets=tree.targets(edge, at_len - start)
        )
        self._add(BatchRow(req, hold, plan, RowKind.EDGE, edge=edge))

    def to_plan(self) -> Plan:
        """What the runner is told."""
        kinds = {row.kind is RowKind.DECODE and not row.plan.drafts for row in self.rows}
        mode = ForwardMode.MIXED if len(kinds) == 2 else ForwardMode.EXTEND if False in kinds else ForwardMode.DECODE
        return Plan(self.step, mode, tuple(row.plan for row in self.rows), tuple(self.copies))

    def resolve(
        self, plan: Plan, run_of: Callable[[Req], Sequence[int]] = lambda _: (), *, is_launched: bool = False
    ) -> Plan:
        """`plan`, which is this batch's, with every token known; rows of requests that have ended give nothing.

        `run_of`: the tokens that a constraint forces next; as many as the row's pages hold go with it as guesses. Where the
        plan is launched already, its rows compute what they did, and the first of such tokens at most is `given`.
        """
        self.rows = [row._replace(plan=self._resolved(row, run_of, is_launched=is_launched)) for row in self.rows]
        return replace(plan, rows=tuple(row.plan for row in self.rows))

    def _resolved(self, row: BatchRow, run_of: Callable[[Req], Sequence[int]], *, is_launched: bool) -> RowPlan:
        plan, req = row.plan, row.req
        if not row.is_live:  # its request has ended; nobody reads what comes
            ids = (req.output_ids[-1] if req.output_ids else 0,) if plan.is_future else plan.input_ids
            plan = plan._replace(is_future=False, is_dropped=plan.is_future)
            return plan._replace(input_ids=ids, sample=None, targets=(), drafts=(), num_guesses=0)
        if not plan.is_future:
            return plan
        if is_launched:
            return _launched(plan, req, run_of(req))
        plan = self._decode_row(req, row.hold, run_of(req))
        req.planned_len = plan.seq_len
        req.num_drafted = len(plan.drafts)
        req.num_pending = 1 + req.num_drafted
        return plan

    def _decode_row(self, req: Req, hold: KvHold, run: Sequence[int]) -> RowPlan:
        """The row of a request's last token, which is known, with the begin of `run` as guesses."""
        start = req.seq_len - 1
        run = run[: req.tokens_left]
        num_drafts = min(len(run), req.tokens_left - 1, hold.allocated_len - start - 1)
        cursors = _cursors(req, run[:num_drafts])
        num_drafts = len(cursors) - 1
        drafts = tuple(run[:num_drafts])
        is_given = req.jump.is_given and not req.jump.is_guess
        specs = tuple(
            _sample_spec(req, req.seq_len + i, drafts[:i], token if is_given else None, cursors[i])
            for i, token in enumerate(drafts)
        )
        last = run[num_drafts] if is_given and len(run) > num_drafts else None
        ids = (req.output_ids[-1], *drafts)
        num_guesses = num_wanted(req)
        pages = self._pages(hold, start + len(ids), num_guesses)
        sample = _sample_spec(req, start + len(ids), drafts, last, cursors[-1])
        return RowPlan(req.rid, ids, start, pages, sample, drafts=specs, num_guesses=num_guesses)

    def has(self, req: Req) -> bool:
        """The request has a row here; another one of the same id does not count."""
        return self.reqs.get(req.rid) is req

    def _add(self, row: BatchRow) -> None:
        self.rows.append(row)
        self.reqs[row.req.rid] = row.req
        self.num_tokens += row.plan.extend_len

    def _pages(self, hold: KvHold, end: int, num_guesses: int = 0) -> NDArray[np.int32]:
        """The pages up to `end`; where a draft model goes on from there, all that are granted."""
        return hold.plan_pages(-(-(hold.allocated_len if num_guesses else end) // self._page_size))


def _hold_of(req: Req) -> KvHold:
    assert req.hold is not None, f"request {req.rid!r} gets a row and holds nothing"
    return req.hold


def _launched(plan: RowPlan, req: Req, run: Sequence[int]) -> RowPlan:
    """The row that was launched with the token in flight, which is known now; `run`: the tokens to try after it."""
    assert plan.seq_len == req.seq_len, (
        f"request {req.rid!r} was launched at {plan.prefix_len} and has {req.seq_len} tokens now"
    )
    given = run[0] if run and req.jump.is_given and not req.jump.is_guess else None
    req.jump.is_due = min(len(run), req.tokens_left) > 1
    sample = _sample_spec(req, req.seq_len, given=given)
    return plan._replace(input_ids=(req.output_ids[-1],), is_future=False, sample=sample)


def _sample_spec(
    req: Req,
    position: int,
    guesses: Sequence[int] = (),
    given: int | None = None,
    grammar: GrammarCursor | None = None,
) -> SampleSpec:
    """How the token at `position` of the sequence is drawn, `guesses` being the ones before it that are not committed.

    `grammar`: the request's cursor behind the guesses; None: the request's own.
    """
    params = req.add.sampling
    output_ids: Sequence[int] = [*req.output_ids, *guesses] if guesses else req.output_ids
    return SampleSpec(
        params,
        params.seed or 0,
        position,
        req.add.input_ids,
        output_ids,
        req.grammar if grammar is None else grammar,
        req.add.logprob,
        given,
    )


def num_wanted(req: Req) -> int:
    """How many guesses a draft model is asked for behind the request's next row; 0 without one."""
    return req.jump.guesser.num_wanted if isinstance(req.jump.guesser, DraftGuesser) else 0


def _cursors(req: Req, guesses: Sequence[int]) -> list[GrammarCursor | None]:
    """The cursor of the request before each guess and behind the last one.

    Those of a draft model end before the first that the grammar forbids or that ends it, and where forced tokens are taken,
    before the first that one follows. Fewer, too, where the grammar's tables pass their limit in between: then the rest is not guessed, and the request learns of it
    when that token is drawn.
    """
    grammar = req.grammar
    cursors = [grammar]
    for token in guesses:
        if grammar is not None:
            grammar = grammar.fork()
            try:
                is_legal = grammar.accept_token(token)
                if req.jump.is_guess and not (is_legal and _goes_on(grammar, req)):
                    break
            except ValueError:
                break
        cursors.append(grammar)
    return cursors


def _goes_on(grammar: GrammarCursor, req: Req) -> bool:
    """The next token is drawn: the constraint has not ended, and none is given."""
    if grammar.is_terminated or grammar.has_only_end:
        return False
    return not (req.jump.is_given and grammar.jump_forward(req.add.input_ids[-1:]))


def _input_targets(req: Req, start: int, end: int) -> list[LogprobTarget]:
    """Targets for the prompt positions whose log-probability is missing and that follow a token of the row."""
    missing = req.next_input_logprob
    if missing is None or req.logprob is None:
        return []
    has_row_in_flight = req.hold is not None and req.hold.committed_len < start
    assert has_row_in_flight or start <= max(missing - 1, 0), (
        f"request {req.rid!r} needs token {missing - 1} computed, its row begins at {start}"
    )
    ids: Sequence[int] = req.add.input_ids
    asked, top_num = req.logprob.token_ids, req.logprob.top_num
    return [
        LogprobTarget(position - 1 - start, (ids[position], *asked), top_num)
        for position in range(max(missing, start + 1), min(end + 1, req.prompt_len))
    ]
