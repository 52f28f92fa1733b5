"""The batch builder against a loop over single tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.execution.batch_builder import (
    build_forward_batch,
    build_page_table,
    concat_input_ids,
    find_rows_outside,
)
from sglang_lite.runtime.scheduler.plan import RowPlan
from tests.runtime.execution.support import row


@st.composite
def plan_rows(draw: st.DrawFn) -> tuple[list[RowPlan], int]:
    page_size = draw(st.sampled_from([1, 2, 4, 16]))
    rows = []
    for i in range(draw(st.integers(1, 6))):
        prefix_len, extend_len = draw(st.integers(0, 40)), draw(st.integers(1, 30))
        spare = draw(st.integers(0, 2))
        num_pages = -(-(prefix_len + extend_len) // page_size) + spare
        pages = draw(st.lists(st.integers(1, 10_000), min_size=num_pages, max_size=num_pages))
        ids = draw(st.lists(st.integers(0, 50_000), min_size=extend_len, max_size=extend_len))
        rows.append(row(f"r{i}", ids, pages, prefix_len=prefix_len))
    return rows, page_size


@given(plan_rows())
def test_every_token_gets_its_position_and_the_slot_of_its_page(case: tuple[list[RowPlan], int]) -> None:
    rows, page_size = case
    fb = build_forward_batch(rows, page_size)
    token = 0
    for i, one in enumerate(rows):
        assert int(fb.q_starts[i]) == token
        assert int(fb.prefix_lens[i]) == one.prefix_len
        assert int(fb.seq_lens[i]) == one.prefix_len + len(one.input_ids)
        for offset, token_id in enumerate(one.input_ids):
            position = one.prefix_len + offset
            assert int(fb.input_ids[token]) == token_id
            assert int(fb.positions[token]) == position
            assert int(fb.out_slots[token]) == one.pages[position // page_size] * page_size + position % page_size
            token += 1
        needed = -(-one.seq_len // page_size)
        assert fb.page_table[i, :needed].tolist() == one.pages[:needed].tolist()
        assert fb.page_table[i, needed:].eq(0).all()
    assert int(fb.q_starts[-1]) == token == fb.num_tokens


def test_pages_granted_beyond_the_rows_tokens_are_left_out() -> None:
    rows = [row("a", [1, 2], [7, 8, 9]), row("b", [3], [4], prefix_len=1)]
    assert build_page_table(rows, 2).tolist() == [[7], [4]]


def test_a_row_with_too_few_pages_is_named() -> None:
    with pytest.raises(AssertionError, match="row a: 3 tokens need 2 pages of 2, the plan has 1"):
        build_page_table([row("a", [1, 2, 3], [7])], 2)


def test_rows_with_ids_outside_the_vocabulary_are_found() -> None:
    rows = [row("a", [1, 2], [1]), row("b", [3, -1, 4], [1]), row("c", [9], [1]), row("d", [10, 11], [1])]
    ids, lens = concat_input_ids(rows)
    assert find_rows_outside(ids, lens, 10).tolist() == [False, True, False, True]
    assert np.array_equal(find_rows_outside(ids, lens, 12), [False, True, False, False])
