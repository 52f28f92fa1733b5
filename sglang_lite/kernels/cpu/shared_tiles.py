"""Tiles of rows that begin with the same pages: their keys are read once for several rows, with equal results to the bit.

Only rows of one new token are joined (a tile of a longer row is full by itself), and only over whole blocks of keys, so
that each row's sums are built in the same pieces and order as alone.
"""

from __future__ import annotations

import numpy as np

from sglang_lite.kernels.cpu.paged_attention import (
    BLOCK,
    FIRST,
    KV_HEAD,
    OTHER_ROWS,
    OTHERS,
    ROW,
    SHARED_BLOCKS,
    TILE_FIELDS,
    plan_tiles,
    tile_positions,
)


def plan_batch_tiles(
    q_starts: np.ndarray, seq_lens: np.ndarray, page_table: np.ndarray, page_size: int, kv_heads: int, group: int
) -> np.ndarray:
    """As `plan_tiles`, with rows of one new token that share their first pages joined.

    Args:
        q_starts: int32 [R + 1].
        seq_lens: int32 [R], new tokens included.
        page_table: int32 [R, max_pages].
        page_size: tokens in a page.
        kv_heads: kv heads of the model.
        group: query heads per kv head.

    Returns:
        int32 [n, TILE_FIELDS].

    """
    extend = np.diff(q_starts)
    most = tile_positions(group)
    pages_per_block = BLOCK // page_size
    blocks = np.where(extend == 1, (seq_lens - 1) // BLOCK, 0)
    if most < 2 or np.count_nonzero(blocks) < 2:
        return plan_tiles(extend, kv_heads, group)
    rows = np.flatnonzero(blocks)
    width = int(blocks.max())
    # A block's pages, as one key: rows whose keys are equal up to a block read the same memory up to it.
    keys = page_table[rows, : width * pages_per_block].reshape(len(rows), width, pages_per_block)
    order = np.lexsort(keys.reshape(len(rows), -1).T[::-1])
    rows, keys = rows[order], keys[order]
    same = (keys[1:] == keys[:-1]).all(axis=2)
    common = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    common = np.minimum(common, np.minimum(blocks[rows[1:]], blocks[rows[:-1]]))
    bundles, alone = _bundles(rows.tolist(), common.tolist(), most)
    if not bundles:
        return plan_tiles(extend, kv_heads, group)
    joined = np.zeros((len(bundles), TILE_FIELDS), dtype=np.int32)
    for tile, (members, shared) in zip(joined, bundles, strict=True):
        tile[ROW], tile[SHARED_BLOCKS], tile[OTHERS] = members[0], shared, len(members) - 1
        tile[OTHER_ROWS : OTHER_ROWS + len(members) - 1] = members[1:]
    joined = np.repeat(joined, kv_heads, axis=0)
    joined[:, KV_HEAD] = np.tile(np.arange(kv_heads), len(bundles))
    left = np.ones(len(extend), dtype=bool)
    left[rows] = False
    left[alone] = True
    rest = plan_tiles(np.where(left, extend, 0), kv_heads, group)
    assert (joined[:, FIRST] == 0).all(), "a joined row has one new token"
    return np.concatenate([joined, rest])


def _bundles(rows: list[int], common: list[int], most: int) -> tuple[list[tuple[list[int], int]], list[int]]:
    """Neighbours of an order in which those that share lie together, up to `most` in a bundle; and rows that stay alone.

    `common[i]`: blocks that rows i and i + 1 share.
    """
    bundles: list[tuple[list[int], int]] = []
    alone: list[int] = []
    at = 0
    while at < len(rows):
        members, shared = [rows[at]], 0
        while len(members) < most and at + 1 < len(rows) and common[at] > 0:
            deeper = common[at] if len(members) == 1 else min(shared, common[at])
            # A neighbour that shares much less than those before it begins a bundle of its own.
            if len(members) > 1 and deeper < shared:
                break
            members.append(rows[at + 1])
            shared = deeper
            at += 1
        at += 1
        if len(members) > 1:
            bundles.append((members, shared))
        else:
            alone.append(members[0])
    return bundles, alone
