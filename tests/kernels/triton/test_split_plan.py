from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.kernels.triton.split_plan import (
    ITEM_FIELDS,
    MAX_SPLITS,
    SPLIT,
    SplitPlan,
    most_splits,
    piece_sizes,
    plan_split,
    queries_per_tile,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def plan(lens: list[int], table: np.ndarray, page_size: int = 16, group: int = 4, share: bool = True) -> SplitPlan:
    rows = np.arange(len(lens), dtype=np.int32)
    return plan_split(rows, rows, ints(*lens), table.astype(np.int32), page_size, group, share=share)


def own_pages(rows: int, width: int) -> np.ndarray:
    return 1 + np.random.default_rng(0).permutation(rows * width).reshape(rows, width)


def check(plan: SplitPlan, table: np.ndarray, row_of: np.ndarray, page_size: int, group: int) -> None:
    """Every piece of every query is read once, from that query's pages, by a tile that has room for it."""
    seen: set[tuple[int, int]] = set()
    for first, count, row, start, end, piece in plan.items.tolist():
        assert 1 <= count <= queries_per_tile(group)
        assert start < end
        for query in range(first, first + count):
            size, limit = int(plan.pieces[query]), int(plan.limits[query])
            assert start == piece * size
            assert end <= start + size
            assert min(limit, start + size) <= end
            own = table[row_of[plan.tokens[query]]]
            pages = slice(start // page_size, -(-min(limit, end) // page_size))
            assert (table[row, pages] == own[pages]).all()
            assert (query, piece) not in seen
            seen.add((query, piece))
    expected = {
        (query, piece)
        for query, (limit, size) in enumerate(zip(plan.limits.tolist(), plan.pieces.tolist(), strict=True))
        for piece in range(-(-limit // size))
    }
    assert seen == expected
    assert plan.splits == max(-(-plan.limits // plan.pieces))


def test_pieces_are_short_until_there_would_be_too_many() -> None:
    longest = SPLIT * MAX_SPLITS
    lens = ints(1, SPLIT + 1, longest, longest + 1, 2 * longest, 2 * longest + 1, 131072)
    sizes = piece_sizes(lens)
    assert sizes.tolist() == [SPLIT, SPLIT, SPLIT, 2 * SPLIT, 2 * SPLIT, 4 * SPLIT, 16 * SPLIT]
    assert max(-(-lens // sizes)) == MAX_SPLITS == most_splits(131072)
    assert most_splits(SPLIT + 1) == 2


def test_rows_that_share_nothing_have_their_own_items_largest_first() -> None:
    result = plan([600, 3], own_pages(2, 40))
    assert result.items.shape == (4, ITEM_FIELDS)
    assert result.items[:, 1].tolist() == [1, 1, 1, 1]
    assert (result.items[:, 4] - result.items[:, 3]).tolist() == [256, 256, 88, 3]


def test_rows_that_begin_with_the_same_pages_share_whole_pieces_only() -> None:
    """40 pages of 16 tokens in common are two whole pieces; the last of row 2 ends within the shared pages."""
    table = own_pages(4, 60)
    table[1:3, :40] = table[0, :40]
    result = plan([700, 800, 600, 700], table)
    shared = result.items[result.items[:, 1] > 1]
    assert sorted(map(tuple, shared[:, [1, 3, 4]].tolist())) == [(3, 0, 256), (3, 256, 512)]
    check(result, table, np.arange(4), 16, 4)


def test_a_tile_takes_only_as_many_rows_as_have_room() -> None:
    table = np.tile(own_pages(1, 20), (6, 1))
    counts = {group: plan([257] * 6, table, group=group).items[:, 1].tolist() for group in (1, 4, 8, 9, 20)}
    assert sorted(counts[1]) == [1] * 6 + [6]
    assert sorted(counts[4]) == [1] * 6 + [2, 4]
    assert sorted(counts[8]) == [1] * 6 + [2, 2, 2]
    assert counts[9] == counts[20] == [1] * 12


def test_sharing_is_off_where_it_is_not_wanted() -> None:
    table = np.tile(own_pages(1, 20), (2, 1))
    assert (plan([300, 300], table, share=False).items[:, 1] == 1).all()


def test_tokens_of_one_row_share_pieces_that_are_not_whole_too() -> None:
    rows = ints(1, 1, 1, 0)
    table = own_pages(2, 20)
    result = plan_split(ints(0, 1, 2, 3), rows, ints(255, 256, 257, 9), table.astype(np.int32), 16, 2)
    assert sorted(map(tuple, result.items[:, [1, 3, 4]].tolist())) == [(1, 0, 9), (1, 256, 257), (3, 0, 256)]
    check(result, table, np.append(rows[:3], 0), 16, 2)


def test_equal_last_pages_of_no_equal_beginning_are_not_joined() -> None:
    table = own_pages(2, 40)
    table[1, 16:32] = table[0, 16:32]
    assert (plan([512, 512], table).items[:, 1] == 1).all()


@pytest.mark.parametrize("page_size", [1, 16, 48, 512])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_every_piece_is_read_once_whatever_is_shared(page_size: int, group: int) -> None:
    random = np.random.default_rng(page_size + group)
    for _ in range(20):
        num_rows, longest = int(random.integers(1, 12)), int(random.integers(1, 3000))
        if random.random() < 0.2:
            longest = 20000
        width = -(-longest // page_size) + 2
        table = own_pages(num_rows, width)
        for row in range(1, num_rows):
            if random.random() < 0.7:
                shared = int(random.integers(0, width))
                table[row, :shared] = table[int(random.integers(0, row)), :shared]
        extend = random.integers(1, 5, num_rows)
        rows = np.repeat(np.arange(num_rows, dtype=np.int32), extend)
        ends = np.maximum(random.integers(1, longest + 1, num_rows), extend)
        limits = np.concatenate([np.arange(end - n, end) + 1 for end, n in zip(ends, extend, strict=True)])
        tokens = np.arange(len(rows), dtype=np.int32)
        result = plan_split(tokens, rows, limits.astype(np.int32), table.astype(np.int32), page_size, group)
        assert sorted(result.tokens.tolist()) == tokens.tolist()
        assert (result.limits == limits[result.tokens]).all()
        check(result, table, rows, page_size, group)
