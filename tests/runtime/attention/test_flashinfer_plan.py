"""The plans, read as FlashInfer reads them, give each query just the tokens of its row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.attention.flashinfer_plan import (
    CascadePlan,
    PagedPlan,
    cascade_plan,
    is_decode,
    paged_plan,
    ragged_plan,
)
from sglang_lite.runtime.attention.forward_batch import ForwardBatch, HostBatch

PAGE_SIZE = 4
FEW_TOKENS = 16
"""What the small rows here share is worth a level from here on."""


def batch(rows: list[tuple[list[int], int, int]], page_size: int = PAGE_SIZE) -> HostBatch:
    """Rows of (pages, prefix length, new tokens)."""
    table = np.zeros((len(rows), max(len(pages) for pages, _, _ in rows)), dtype=np.int32)
    for i, (pages, _, _) in enumerate(rows):
        table[i, : len(pages)] = pages
    extend = np.array([new for _, _, new in rows])
    prefix = np.array([prefix for _, prefix, _ in rows])
    return ForwardBatch.build(np.zeros(extend.sum(), dtype=int), extend, prefix, table, page_size).host


def slots_of(plan: PagedPlan, row: int, page_size: int) -> list[int]:
    """The slots that a row of the plan reads, as the layout is defined."""
    pages = plan.indices[plan.kv_indptr[row] : plan.kv_indptr[row + 1]].tolist()
    if not pages:
        assert plan.last_page_len[row] == 0
        return []
    assert 1 <= plan.last_page_len[row] <= page_size
    whole = [page * page_size + offset for page in pages for offset in range(page_size)]
    return whole[: (len(pages) - 1) * page_size + int(plan.last_page_len[row])]


def expected_slots(host: HostBatch, row: int, page_size: int) -> list[int]:
    return [
        int(host.page_table[row, token // page_size]) * page_size + token % page_size
        for token in range(int(host.seq_lens[row]))
    ]


def check_types(*plans: PagedPlan) -> None:
    for plan in plans:
        for array in (plan.qo_indptr, plan.kv_indptr, plan.indices, plan.last_page_len):
            assert array.dtype == np.int32
        assert len(plan.qo_indptr) == len(plan.kv_indptr) == plan.num_rows + 1
        assert len(plan.indices) == plan.kv_indptr[-1]


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_row_reads_its_tokens_and_no_others(page_size: int) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for prefix, new in [(0, 1), (3, 1), (4, 4), (15, 1), (16, 1), (0, 33), (31, 1)]:
        rows.append((rng.permutation(np.arange(1, 99))[: -(-(prefix + new) // page_size)].tolist(), prefix, new))
    host = batch(rows, page_size)
    plan = paged_plan(host, page_size)
    check_types(plan)
    assert np.array_equal(plan.qo_indptr, host.q_starts)
    for row in range(len(rows)):
        assert slots_of(plan, row, page_size) == expected_slots(host, row, page_size)


def check_cascade(host: HostBatch, plan: CascadePlan, page_size: int) -> None:
    """Each query meets its row's tokens in order, once, and new tokens in the causal level only."""
    check_types(*plan.levels)
    assert len(plan.levels) >= 2
    assert np.array_equal(plan.levels[-1].qo_indptr, host.q_starts)
    reads = 0
    for level in plan.levels:
        assert (level.qo_indptr[0], level.qo_indptr[-1]) == (0, len(host.positions))
        assert (np.diff(level.qo_indptr) > 0).all()
        reads += len(level.indices)
    for row in range(len(host.seq_lens)):
        slots: list[int] = []
        for level in plan.levels:
            lo, hi = host.q_starts[row], host.q_starts[row + 1]
            groups = [g for g in range(level.num_rows) if level.qo_indptr[g] <= lo and hi <= level.qo_indptr[g + 1]]
            assert len(groups) == 1, "a row's queries stay together"
            part = slots_of(level, groups[0], page_size)
            assert level is plan.levels[-1] or len(slots) + len(part) <= host.prefix_lens[row]
            slots += part
        assert slots == expected_slots(host, row, page_size)
    pages = int((-(-host.seq_lens // page_size)).sum())
    assert reads == pages - plan.saved_pages


def test_children_of_a_fork_read_their_prefix_once() -> None:
    trunk = list(range(1, 11))
    host = batch([([*trunk, 20 + i], 41, 1) for i in range(4)])
    plan = cascade_plan(host, PAGE_SIZE, min_shared_tokens=FEW_TOKENS)
    assert plan is not None
    check_cascade(host, plan, PAGE_SIZE)
    shared, own = plan.levels
    assert shared.qo_indptr.tolist() == [0, 4]
    assert shared.indices.tolist() == trunk
    assert own.indices.tolist() == [20, 21, 22, 23]
    assert plan.saved_pages == 30


def test_groups_within_a_group_make_a_level_of_their_own() -> None:
    trunk, left, right = list(range(1, 6)), list(range(10, 16)), list(range(20, 26))
    rows = [([*trunk, *left, 30 + i], 44, 1) for i in range(3)] + [([*trunk, *right, 40 + i], 45, 2) for i in range(2)]
    host = batch(rows)
    plan = cascade_plan(host, PAGE_SIZE, min_shared_tokens=FEW_TOKENS)
    assert plan is not None
    check_cascade(host, plan, PAGE_SIZE)
    assert [level.num_rows for level in plan.levels] == [1, 2, 5]
    assert plan.levels[1].indices.tolist() == [*left, *right]
    assert plan.saved_pages == 4 * 5 + 2 * 6 + 6
    two = cascade_plan(host, PAGE_SIZE, max_levels=2, min_shared_tokens=FEW_TOKENS)
    assert two is not None
    assert len(two.levels) == 2


def test_rows_that_share_with_nobody_have_no_pages_in_the_shared_level() -> None:
    trunk = list(range(1, 9))
    alone = ([50, 51], 5, 1)
    host = batch([alone, ([*trunk, 20], 32, 1), ([*trunk, 21], 33, 1), alone])
    plan = cascade_plan(host, PAGE_SIZE, min_shared_tokens=FEW_TOKENS)
    assert plan is not None
    check_cascade(host, plan, PAGE_SIZE)
    assert np.diff(plan.levels[0].kv_indptr).tolist() == [0, 8, 0]
    assert plan.levels[0].last_page_len.tolist() == [0, PAGE_SIZE, 0]


@pytest.mark.parametrize(
    "rows",
    [
        [([1, 2, 3, 4, 5, 6], 20, 1)],
        [([1, 2, 3, 4, 5, 6], 20, 1), ([11, 12, 13, 14, 15, 16], 20, 1)],
        [([1, 2, 3, 9], 12, 1), ([1, 2, 3, 8], 12, 1)],  # too little in common
        [([1, 2, 3, 4, 5, 6], 10, 14), ([1, 2, 3, 4, 5, 6], 10, 14)],  # the same pages, but new tokens in them
        [([1, 2, 3, 4, 5, *range(20, 60)], 170, 1), ([1, 2, 3, 4, 5, *range(60, 100)], 170, 1)],  # 5 of 90 pages
    ],
)
def test_where_little_is_shared_there_is_no_cascade(rows: list[tuple[list[int], int, int]]) -> None:
    assert cascade_plan(batch(rows), PAGE_SIZE, min_shared_tokens=FEW_TOKENS) is None


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_how_much_must_be_shared_counts_in_tokens(page_size: int) -> None:
    for shared, pays in ((48, False), (64, True)):
        trunk = list(range(1, 1 + shared // page_size))
        host = batch([([*trunk, 200 + i], shared, 1) for i in range(3)], page_size)
        plan = cascade_plan(host, page_size)
        assert (plan is not None) is pays
        if plan is not None:
            check_cascade(host, plan, page_size)


@given(st.data())
def test_any_tree_of_rows_is_read_right(data: st.DataObject) -> None:
    """Rows are leaves of a random tree whose edges are runs of pages."""
    fresh = iter(range(1, 10_000))

    def grow(pages: list[int], depth: int) -> list[list[int]]:
        pages = [*pages, *(next(fresh) for _ in range(data.draw(st.integers(0, 7))))]
        if depth == 0 or data.draw(st.booleans()):
            return [pages]
        return [leaf for _ in range(data.draw(st.integers(1, 3))) for leaf in grow(pages, depth - 1)]

    rows = []
    for pages in grow([], 3):
        prefix = len(pages) * PAGE_SIZE - data.draw(st.integers(0, min(3, len(pages) * PAGE_SIZE)))
        new = data.draw(st.integers(1, 6))
        own = -(-(prefix + new) // PAGE_SIZE) - len(pages)
        rows.append(([*pages, *(next(fresh) for _ in range(own))], prefix, new))
    host = batch(rows)
    plan = cascade_plan(host, PAGE_SIZE, min_shared_tokens=8, min_saved_share=0.0)
    if plan is not None:
        check_cascade(host, plan, PAGE_SIZE)


def test_only_rows_from_the_beginning_go_without_the_pool() -> None:
    host = batch([([1, 2], 0, 5), ([3], 0, 2)])
    plan = ragged_plan(host)
    assert plan is not None
    assert plan.indptr.tolist() == [0, 5, 7]
    assert ragged_plan(batch([([1, 2], 0, 5), ([3], 1, 2)])) is None


def test_a_decode_step_has_one_new_token_a_row() -> None:
    assert is_decode(batch([([1, 2], 4, 1), ([3], 0, 1)]))
    assert not is_decode(batch([([1, 2], 4, 1), ([3], 0, 2)]))
