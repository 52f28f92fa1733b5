"""ScheduleBatch: the rows of one step, each with the request it belongs to; it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.hold import PageCopy
from sglang_lite.runtime.memory.kv import KvHold
from sglang_lite.runtime.scheduler.plan import ForwardMode, LogprobTarget, Plan, RowPlan, SampleSpec
from sglang_lite.runtime.scheduler.req import Req


class RowKind(Enum):
    """What a row is for."""

    EXTEND = "extend"
    DECODE = "decode"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row: the request, the hold it writes to, what the runner is told.

    `num_input_logprobs`: how many of the plan's targets are prompt positions; they come first. `edge`: of a scoring row.
    """

    req: Req
    hold: KvHold
    plan: RowPlan
    kind: RowKind
    num_input_logprobs: int = 0
    edge: int | None = None


class ScheduleBatch:
    """The rows of step `step` as one table: row i of the plan is `rows[i]`, whatever is added."""

    def __init__(self, step: int, page_size: int) -> None:
        self.step = step
        self.rows: list[BatchRow] = []
        self.copies: list[PageCopy] = []
        self.rids: set[str] = set()
        self._page_size = page_size

    def add_extend(self, req: Req, end: int) -> None:
        """Compute the request's tokens from what is committed up to `end`; the last of them samples."""
        hold = _hold_of(req)
        start = hold.committed_len
        assert start < end <= req.seq_len, f"request {req.rid!r} extends from {start} to {end} of {req.seq_len} tokens"
        targets = _input_targets(req, start, end)
        num_input = len(targets)
        is_last = end == req.seq_len
        if is_last and req.score is not None:
            targets.append(LogprobTarget(end - start - 1, req.score.tree.first_tokens(None)))
        plan = RowPlan(
            rid=req.rid,
            input_ids=tuple(req.ids[start:end].tolist()),
            prefix_len=start,
            pages=self._pages(hold, end),
            sample=_sample_spec(req) if is_last and req.samples else None,
            targets=tuple(targets),
        )
        self._add(BatchRow(req, hold, plan, RowKind.EXTEND, num_input))

    def add_decode(self, req: Req) -> None:
        """Compute the request's last token and sample the next."""
        hold = _hold_of(req)
        end = req.seq_len
        assert hold.committed_len == end - 1, (
            f"request {req.rid!r} decodes with {hold.committed_len} of {end} committed"
        )
        plan = RowPlan(req.rid, (req.output_ids[-1],), end - 1, self._pages(hold, end), _sample_spec(req))
        self._add(BatchRow(req, hold, plan, RowKind.DECODE))

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
        kinds = {row.kind is RowKind.DECODE for row in self.rows}
        mode = ForwardMode.MIXED if len(kinds) == 2 else ForwardMode.EXTEND if False in kinds else ForwardMode.DECODE
        return Plan(self.step, mode, tuple(row.plan for row in self.rows), tuple(self.copies))

    def _add(self, row: BatchRow) -> None:
        self.rows.append(row)
        self.rids.add(row.req.rid)

    def _pages(self, hold: KvHold, end: int) -> NDArray[np.int32]:
        # A copy: the hold's row may be rewritten while a runner still reads the plan.
        return hold.pages[: -(-end // self._page_size)].copy()


def _hold_of(req: Req) -> KvHold:
    assert req.hold is not None, f"request {req.rid!r} gets a row and holds nothing"
    return req.hold


def _sample_spec(req: Req) -> SampleSpec:
    return SampleSpec(
        params=req.params,
        seed=req.params.seed or 0,
        position=req.seq_len,
        prompt_ids=req.add.input_ids,
        output_ids=req.output_ids,
        grammar=req.grammar,
        logprob=req.logprob,
    )


def _input_targets(req: Req, start: int, end: int) -> list[LogprobTarget]:
    """Targets for the prompt positions whose log-probability is missing and that follow a token of the row."""
    missing = req.next_input_logprob
    if missing is None or req.logprob is None:
        return []
    assert start <= max(missing - 1, 0), (
        f"request {req.rid!r} needs token {missing - 1} computed, its row begins at {start}"
    )
    ids: Sequence[int] = req.add.input_ids
    asked, top_num = req.logprob.token_ids, req.logprob.top_num
    return [
        LogprobTarget(position - 1 - start, (ids[position], *asked), top_num)
        for position in range(max(missing, 1), min(end + 1, req.prompt_len))
    ]
