"""Which rows a draft model computes: what was true of the target's, the drawn token, and as far as pages reach."""

from __future__ import annotations

from sglang_lite.runtime.execution.draft_rows import row_after, rows_behind
from sglang_lite.runtime.scheduler.plan import KeptDraft, RowResult
from tests.runtime.execution.support import row, spec

PAGE = 4


def test_a_row_goes_on_as_far_as_its_pages_reach() -> None:
    """Six tokens in two pages of four: the drawn one and the next are computed, behind each is a guess."""
    wanted = row("a", [1, 2, 3, 4, 5, 6], [3, 7], sample=spec())._replace(num_guesses=9)
    full = row("b", [1, 2, 3, 4], [4], sample=spec())._replace(num_guesses=9)
    behind = rows_behind([wanted, full], [RowResult(8), RowResult(8)], PAGE)
    assert [(r.input_ids, r.num_guesses) for r in behind.values()] == [((1, 2, 3, 4, 5, 6, 8), 2), ((1, 2, 3, 4), 0)]
    after = row_after(behind[0], 5)
    assert (after.input_ids, after.prefix_len, after.num_guesses) == ((5,), 7, 1)


def test_a_row_that_failed_or_drew_nothing_is_computed_and_not_gone_on_with() -> None:
    drafted = row("a", [1, 2, 3], [3], sample=spec())._replace(num_guesses=2, drafts=(spec(), spec()))
    failed = rows_behind([drafted], [RowResult(None, kept=(KeptDraft(2),))], PAGE)[0]
    assert (failed.input_ids, failed.num_guesses) == ((1, 2), 0)


def test_a_dropped_row_is_left_out_since_guesses_before_it_may_have_fallen() -> None:
    rows = [row("a", [1, 2, 3], [3])._replace(is_dropped=True), row("b", [1], [4])]
    assert list(rows_behind(rows, [RowResult(), RowResult()], PAGE)) == [1]
