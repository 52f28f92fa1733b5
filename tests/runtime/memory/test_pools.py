"""Free stacks of rows and pages."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.runtime.memory.pools import Owner, PagePool, PoolStatistics, RowPool


def test_every_row_is_handed_out_once_and_comes_back() -> None:
    rows = RowPool(3, 5)
    taken = [rows.take() for _ in range(3)]
    assert sorted(taken) == [0, 1, 2]
    assert rows.num_free == 0
    with pytest.raises(AssertionError, match="all 3 rows"):
        rows.take()
    for row in taken:
        rows.give(row)
    assert sorted(rows.free_rows().tolist()) == [0, 1, 2]


def test_a_row_given_back_twice_is_noticed() -> None:
    rows = RowPool(2, 1)
    row = rows.take()
    rows.give(row)
    with pytest.raises(AssertionError, match="twice"):
        rows.give(row)


def test_the_sink_page_is_never_handed_out() -> None:
    pages = PagePool(5)
    taken = pages.take(4)
    assert taken.dtype == np.int32
    assert sorted(taken.tolist()) == [1, 2, 3, 4]
    assert pages.owner[0] == Owner.SINK
    with pytest.raises(AssertionError, match="evict first"):
        pages.take(1)


def test_taken_pages_are_not_a_view_of_the_stack() -> None:
    """Pages kept by a caller must survive later moves of the stack."""
    pages = PagePool(5)
    kept = pages.take(2)
    before = kept.tolist()
    pages.give(pages.take(2), Owner.PRIVATE)
    assert kept.tolist() == before


def test_a_page_is_freed_only_by_its_owner() -> None:
    pages = PagePool(4)
    taken = pages.take(2)
    pages.to_tree(taken[:1])
    with pytest.raises(AssertionError, match="TREE"):
        pages.give(taken, Owner.PRIVATE)
    pages.give(taken[1:], Owner.PRIVATE)
    with pytest.raises(AssertionError, match="FREE"):
        pages.give(taken[1:], Owner.PRIVATE)
    with pytest.raises(AssertionError, match="give to the tree"):
        pages.to_tree(taken[:1])
    pages.give(taken[:1], Owner.TREE)
    assert pages.num_free == 3


def test_pools_of_no_use_are_refused() -> None:
    with pytest.raises(AssertionError, match="sink"):
        PagePool(1)
    with pytest.raises(AssertionError, match="rows"):
        RowPool(0, 4)


def test_statistics_count_what_is_free() -> None:
    rows, pages = RowPool(3, 2), PagePool(6)
    rows.take()
    pages.take(2)
    assert rows.statistics() == PoolStatistics(3, 2)
    assert pages.statistics() == PoolStatistics(5, 3)
