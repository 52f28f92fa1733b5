"""Which rows a draft model computes behind a step of its target, as plans; knows no model.

A draft model has a pool of its own with the same page numbers. It computes every token that its target does, so wherever
a page's keys and values are reused, copied or shared, its own are there, too. Then it goes on from the tokens that were drawn.
What it wrote for guesses that do not stand is written over by the rows that come.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.runtime.scheduler.plan import RowPlan, RowResult


def rows_behind(rows: Sequence[RowPlan], results: Sequence[RowResult], page_size: int) -> dict[int, RowPlan]:
    """What the draft model computes, by the number of the row that it is behind: its tokens without the guesses that fell, and the token drawn behind them.

    `num_guesses` of each is how many tokens it can go on with: as many as are wanted and its pages have room for; where that
    is 0, the drawn token is left out. Behind dropped rows is none: the guesses before them may have fallen.
    """
    both = enumerate(zip(rows, results, strict=True))
    return {i: _row_behind(row, result, page_size) for i, (row, result) in both if not row.is_dropped}


def row_after(row: RowPlan, token: int) -> RowPlan:
    """The next row of a draft model that has guessed `token` behind `row`."""
    return row._replace(input_ids=(token,), prefix_len=row.seq_len, num_guesses=row.num_guesses - 1)


def _row_behind(row: RowPlan, result: RowResult, page_size: int) -> RowPlan:
    known = row.input_ids[: len(row.input_ids) - len(row.drafts) + len(result.kept)]
    end = row.prefix_len + len(known)
    # The last guess is not computed: it needs no room.
    wanted = min(row.num_guesses, len(row.pages) * page_size - end) if result.token_id is not None else 0
    if wanted > 0 and result.token_id is not None:
        known = (*known, result.token_id)
    return RowPlan(row.rid, known, row.prefix_len, row.pages, num_guesses=max(wanted, 0))
