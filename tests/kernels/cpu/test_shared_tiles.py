from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.kernels.cpu.paged_attention import (
    BLOCK,
    FIRST,
    KV_HEAD,
    OTHER_ROWS,
    OTHERS,
    ROW,
    SHARED_BLOCKS,
    paged_attention,
    plan_tiles,
    scratch_floats,
)
from sglang_lite.kernels.cpu.shared_tiles import plan_batch_tiles

PAGE, KV_HEADS, DEPTH = 16, 2, 32
PER_BLOCK = BLOCK // PAGE


def table_of(rows: list[list[int]]) -> np.ndarray:
    """Rows of pages; equal numbers are equal pages."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
    for row, pages in zip(table, rows, strict=True):
        row[: len(pages)] = pages
    return table


def tree(lengths: list[int], shared: list[int], trunk: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Page table and lengths of rows that take their first `shared` blocks from one trunk and have their own behind it."""
    rows, free = [], trunk + 1
    for length, blocks in zip(lengths, shared, strict=True):
        own = -(-length // PAGE) - blocks * PER_BLOCK
        rows.append([*range(1, 1 + blocks * PER_BLOCK), *range(free, free + own)])
        free += own
    return table_of(rows), np.array(lengths, dtype=np.int32)


def members(tile: np.ndarray) -> list[int]:
    return [int(tile[ROW]), *tile[OTHER_ROWS : OTHER_ROWS + tile[OTHERS]].tolist()]


def starts(extend: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(extend)]).astype(np.int32)


def attend(
    tiles: np.ndarray, table: np.ndarray, lens: np.ndarray, q_starts: np.ndarray, group: int, window: int = 0
) -> np.ndarray:
    rng = np.random.default_rng(5)
    pages = int(table.max()) + 1
    k = rng.standard_normal((pages, KV_HEADS, DEPTH, PAGE)).astype(np.float32)
    v = rng.standard_normal((pages, KV_HEADS, PAGE, DEPTH)).astype(np.float32)
    q = rng.standard_normal((int(q_starts[-1]), KV_HEADS * group, DEPTH)).astype(np.float32)
    out = np.full_like(q, np.nan)
    scratch = np.full(scratch_floats(group, DEPTH), np.nan, dtype=np.float32)
    no_scales = np.zeros((1, 1, 1), dtype=np.float32)
    paged_attention(
        q, k, v, no_scales, no_scales, table, q_starts, lens, tiles, scratch, out, np.float32(0.2), window, np.float32(0.0),
        4,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("group", [1, 3, 5])
def test_joined_rows_get_the_same_to_the_bit(group: int, window: int) -> None:
    """Rows that share one block, two and none, and a longer row between them."""
    lengths, shared, extend = [300, 520, 700, 40, 600, 300, 1000], [1, 2, 2, 0, 2, 0, 1], [1, 1, 1, 1, 1, 9, 1]
    table, lens = tree(lengths, shared)
    tiles = plan_batch_tiles(starts(extend), lens, table, PAGE, KV_HEADS, group)
    apart = plan_tiles(np.array(extend), KV_HEADS, group)
    assert tiles[:, OTHERS].max() > 0
    got = attend(tiles, table, lens, starts(extend), group, window)
    assert np.isfinite(got).all()
    assert np.array_equal(got, attend(apart, table, lens, starts(extend), group, window))


def test_every_row_and_head_is_in_one_tile() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 20))
        lengths = rng.integers(1, 900, count)
        shared = [int(rng.integers(0, length // BLOCK + 1)) for length in lengths]
        table, lens = tree(lengths.tolist(), shared)
        tiles = plan_batch_tiles(starts([1] * count), lens, table, PAGE, KV_HEADS, 3)
        found = sorted((row, int(tile[KV_HEAD])) for tile in tiles for row in members(tile))
        assert found == [(row, head) for row in range(count) for head in range(KV_HEADS)]
        assert (tiles[:, FIRST] == 0).all()
        for tile in tiles[tiles[:, OTHERS] > 0]:
            pages = table[members(tile), : tile[SHARED_BLOCKS] * PER_BLOCK]
            assert tile[SHARED_BLOCKS] > 0
            assert (pages == pages[0]).all()
            assert (lens[members(tile)] > tile[SHARED_BLOCKS] * BLOCK).all()


def test_what_shares_most_is_joined() -> None:
    """Four children of one parent read its blocks together, not only the root's."""
    root = list(range(1, 1 + PER_BLOCK))
    parents = [[*root, *range(100 * p, 100 * p + PER_BLOCK)] for p in (1, 2)]
    rows = [[*parents[i % 2], 1000 + i] for i in range(8)]
    lens = np.full(8, 2 * BLOCK + 5, dtype=np.int32)
    tiles = plan_batch_tiles(starts([1] * 8), lens, table_of(rows), PAGE, 1, 3)
    assert sorted(map(members, tiles)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert (tiles[:, SHARED_BLOCKS] == 2).all()


@pytest.mark.parametrize("extend", [[1], [1, 1], [5, 1]])
def test_without_a_shared_block_the_plan_is_the_plain_one(extend: list[int]) -> None:
    table, lens = tree([300] * len(extend), [0] * len(extend))
    tiles = plan_batch_tiles(starts(extend), lens, table, PAGE, KV_HEADS, 3)
    assert torch.equal(torch.from_numpy(tiles), torch.from_numpy(plan_tiles(np.array(extend), KV_HEADS, 3)))
