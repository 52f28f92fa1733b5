"""Causal attention over paged keys and values on the CPU: Numba, sixteen keys at a time.

The query heads of one kv head and a few neighbouring positions form a tile, so keys and values are loaded once for all
of them; so do the last tokens of rows whose first pages are the same (`shared_tiles`). Softmax is online over blocks of `BLOCK` keys that start at multiples of `BLOCK` in the sequence, so a row's
result depends neither on tiles nor on chunks, threads, batch mates or shared pages. Oracle: `kernels/reference/paged_attention.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.simd import HALF_BYTES, INT8_BYTES, LANES, make_score_tile, make_value_tile
from sglang_lite.kernels.cpu.simd_int8 import load_float, load_half, load_signed
from sglang_lite.kernels.cpu.simd_rows import multiply_rows

BLOCK = 256
"""Keys between two softmax rescalings: the score tile of 12 rows (12 KiB) stays in the first-level cache."""

TILE_ROWS = 12
"""Rows (positions x query heads of one kv head) a tile aims at."""

NO_SOFT_CAP = np.float32(0.0)

ROW, KV_HEAD, FIRST, SHARED_BLOCKS, OTHERS, OTHER_ROWS = range(6)
"""Numbers of a tile: its row, kv head, first token of the row's new ones; blocks of keys that further rows, of one new token
each as the first, have on the same pages; how many such rows there are, and which."""

TILE_FIELDS = OTHER_ROWS + TILE_ROWS - 1

_max_of: Any = simd.max_of
_exp_in_place: Any = simd.exp_in_place
_soft_cap_in_place: Any = simd.soft_cap_in_place
_score1, _score2, _score3 = make_score_tile(1), make_score_tile(2), make_score_tile(3)
_score4, _score6 = make_score_tile(4), make_score_tile(6)
_value1, _value2, _value3 = make_value_tile(1), make_value_tile(2), make_value_tile(3)
_value4, _value6 = make_value_tile(4), make_value_tile(6)
_half_score1, _half_score3, _half_score6 = (make_score_tile(rows, HALF_BYTES) for rows in (1, 3, 6))
_half_value1, _half_value3, _half_value6 = (make_value_tile(rows, HALF_BYTES) for rows in (1, 3, 6))
_byte_score1, _byte_score3, _byte_score6 = (make_score_tile(rows, INT8_BYTES) for rows in (1, 3, 6))
_byte_value1, _byte_value3, _byte_value6 = (make_value_tile(rows, INT8_BYTES) for rows in (1, 3, 6))


def tile_positions(group: int) -> int:
    """Positions in one tile for `group` query heads per kv head."""
    return max(1, TILE_ROWS // group)


def scratch_floats(group: int, head_dim: int) -> int:
    """Length of the float32 scratch that one thread passes to `paged_attention`."""
    rows = tile_positions(group) * group
    return rows * (BLOCK + 2 * head_dim + 2) + LANES * head_dim


@njit(nogil=True, cache=True, error_model="numpy")
def _scores(rows: int, q: int, keys: int, key_stride: int, depth: int, out: int) -> None:
    """Scores of `rows` queries (stride `depth`) against 16 keys, into `out` (stride `BLOCK`)."""
    r = 0
    while rows - r >= 6:
        _score6(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 6
    rest = rows - r
    q, out = q + 4 * r * depth, out + 4 * r * BLOCK
    if rest >= 4:
        _score4(q, depth, keys, key_stride, depth, out, BLOCK)
        q, out, rest = q + 16 * depth, out + 16 * BLOCK, rest - 4
    if rest == 3:
        _score3(q, depth, keys, key_stride, depth, out, BLOCK)
    elif rest == 2:
        _score2(q, depth, keys, key_stride, depth, out, BLOCK)
    elif rest == 1:
        _score1(q, depth, keys, key_stride, depth, out, BLOCK)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_values(rows: int, weights: int, values: int, count: int, depth: int, out: int) -> None:
    """Add `count` weighted value vectors (stride `depth`) to the `rows` sums at `out` (stride `depth`)."""
    for column in range(0, depth, LANES):
        w, v, o = weights, values + 4 * column, out + 4 * column
        r = 0
        while rows - r >= 6:
            _value6(w + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 6
        rest = rows - r
        w, o = w + 4 * r * BLOCK, o + 4 * r * depth
        if rest >= 4:
            _value4(w, BLOCK, v, depth, count, o, depth)
            w, o, rest = w + 16 * BLOCK, o + 16 * depth, rest - 4
        if rest == 3:
            _value3(w, BLOCK, v, depth, count, o, depth)
        elif rest == 2:
            _value2(w, BLOCK, v, depth, count, o, depth)
        elif rest == 1:
            _value1(w, BLOCK, v, depth, count, o, depth)


@njit(nogil=True, cache=True, error_model="numpy")
def _half_scores(rows: int, q: int, keys: int, key_stride: int, depth: int, out: int) -> None:
    """As `_scores` for float16 keys."""
    r = 0
    while rows - r >= 6:
        _half_score6(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 6
    while rows - r >= 3:
        _half_score3(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 3
    while r < rows:
        _half_score1(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _add_half_values(rows: int, weights: int, values: int, count: int, depth: int, out: int) -> None:
    """As `_add_values` for float16 values."""
    for column in range(0, depth, LANES):
        v, o = values + 2 * column, out + 4 * column
        r = 0
        while rows - r >= 6:
            _half_value6(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 6
        while rows - r >= 3:
            _half_value3(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 3
        while r < rows:
            _half_value1(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _byte_scores(rows: int, q: int, keys: int, key_stride: int, depth: int, out: int) -> None:
    """As `_scores` for int8 keys, what one is worth left out."""
    r = 0
    while rows - r >= 6:
        _byte_score6(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 6
    while rows - r >= 3:
        _byte_score3(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 3
    while r < rows:
        _byte_score1(q + 4 * r * depth, depth, keys, key_stride, depth, out + 4 * r * BLOCK, BLOCK)
        r += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _add_byte_values(rows: int, weights: int, values: int, count: int, depth: int, out: int) -> None:
    """As `_add_values` for int8 values, what one is worth being in the weights."""
    for column in range(0, depth, LANES):
        v, o = values + column, out + 4 * column
        r = 0
        while rows - r >= 6:
            _byte_value6(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 6
        while rows - r >= 3:
            _byte_value3(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 3
        while r < rows:
            _byte_value1(weights + 4 * r * BLOCK, BLOCK, v, depth, count, o + 4 * r * depth, depth)
            r += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _score_block(
    rows: int,
    queries: np.ndarray,
    k_pages: np.ndarray,
    k_scales: np.ndarray,
    pages: np.ndarray,
    kv_head: np.int64,
    block: int,
    begin: int,
    size: int,
    gathered: np.ndarray,
    scores: np.ndarray,
    item: int,
) -> None:
    """Scores of `rows` queries against keys `block + begin` to `block + size` of a sequence on `pages`."""
    kv_heads, depth, page_size = k_pages.shape[1], k_pages.shape[2], k_pages.shape[3]
    for at in range(begin, size, LANES):
        token = block + at
        if page_size >= LANES:
            page = np.int64(pages[token // page_size])
            keys = k_pages.ctypes.data + item * ((page * kv_heads + kv_head) * depth * page_size + token % page_size)
            if item == 2:
                _half_scores(rows, queries.ctypes.data, keys, page_size, depth, scores.ctypes.data + 4 * at)
                continue
            if item == 1:
                _byte_scores(rows, queries.ctypes.data, keys, page_size, depth, scores.ctypes.data + 4 * at)
                worth = k_scales.ctypes.data + 4 * ((page * kv_heads + kv_head) * page_size + token % page_size)
                for r in range(rows):
                    multiply_rows(scores.ctypes.data + 4 * (r * BLOCK + at), worth, 1)
                continue
            key_stride = page_size
        else:
            for j in range(min(LANES, size - at)):
                page = np.int64(pages[(token + j) // page_size])
                offset = (token + j) % page_size
                head_at = k_pages.ctypes.data + item * (page * kv_heads + kv_head) * depth * page_size
                for d in range(depth):
                    key = head_at + item * (d * page_size + offset)
                    if item == 1:
                        gathered[d, j] = load_signed(key)
                    else:
                        gathered[d, j] = load_half(key) if item == 2 else load_float(key)
            keys = gathered.ctypes.data
            key_stride = LANES
        _scores(rows, queries.ctypes.data, keys, key_stride, depth, scores.ctypes.data + 4 * at)
        if item == 1:
            for j in range(min(LANES, size - at)):
                worth = k_scales[np.int64(pages[(token + j) // page_size]), kv_head, (token + j) % page_size]
                for r in range(rows):
                    scores[r, at + j] *= worth


@njit(nogil=True, cache=True, error_model="numpy")
def _softmax_block(
    rows: int,
    group: int,
    begin: int,
    groups: int,
    size: int,
    seen_from: int,
    seen_to: int,
    soft_cap: np.float32,
    scores: np.ndarray,
    sums: np.ndarray,
    maxima: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Turn a block's scores into weights; rescale what the rows have summed so far.

    The first token's rows see keys `seen_from` to `seen_to` (not included) of the block, the next token's one further.
    """
    for r in range(rows):
        at_row = scores.ctypes.data + 4 * r * BLOCK
        first_seen, end_seen = seen_from + r // group, seen_to + r // group
        if first_seen >= size:
            # The row sees nothing of this block, and may not have seen anything yet.
            scores[r, : groups * LANES] = 0.0
            continue
        if soft_cap > 0:
            _soft_cap_in_place(at_row + 4 * begin, groups - begin // LANES, soft_cap)
        # Hidden keys, and lanes beyond the sequence that hold anything at all, count as -inf.
        for j in range(first_seen):
            scores[r, j] = -np.inf
        for j in range(max(0, end_seen), groups * LANES):
            scores[r, j] = -np.inf
        top = max(maxima[r], _max_of(at_row, groups))
        total = _exp_in_place(at_row, groups, top)
        if top != maxima[r]:
            shrink = np.float32(np.exp(maxima[r] - top))
            for d in range(sums.shape[1]):
                sums[r, d] *= shrink
            totals[r] *= shrink
            maxima[r] = top
        totals[r] += total


@njit(nogil=True, cache=True, error_model="numpy")
def _value_block(
    rows: int,
    weights: np.ndarray,
    v_pages: np.ndarray,
    v_scales: np.ndarray,
    pages: np.ndarray,
    kv_head: np.int64,
    block: int,
    begin: int,
    size: int,
    sums: np.ndarray,
    item: int,
) -> None:
    """Add the weighted values `block + begin` to `block + size` of a sequence on `pages` to the rows' sums.

    Weights of int8 values are multiplied by what one is worth.
    """
    kv_heads, page_size, depth = v_pages.shape[1], v_pages.shape[2], v_pages.shape[3]
    step = min(page_size, LANES)
    for at in range(begin, size, step):
        page, offset = np.int64(pages[(block + at) // page_size]), (block + at) % page_size
        values = v_pages.ctypes.data + item * ((page * kv_heads + kv_head) * page_size + offset) * depth
        weights_at, count = weights.ctypes.data + 4 * at, min(step, size - at)
        if item == 1:
            for j in range(count):
                worth = v_scales[page, kv_head, offset + j]
                for r in range(rows):
                    weights[r, at + j] *= worth
            _add_byte_values(rows, weights_at, values, count, depth, sums.ctypes.data)
        elif item == 2:
            _add_half_values(rows, weights_at, values, count, depth, sums.ctypes.data)
        else:
            _add_values(rows, weights_at, values, count, depth, sums.ctypes.data)


@njit(nogil=True, cache=True, error_model="numpy")
def _attend_keys(
    rows: int,
    group: int,
    visible: Any,
    reach: Any,
    start: Any,
    end: Any,
    queries: np.ndarray,
    k_pages: np.ndarray,
    v_pages: np.ndarray,
    k_scales: np.ndarray,
    v_scales: np.ndarray,
    pages: np.ndarray,
    kv_head: np.int64,
    soft_cap: np.float32,
    gathered: np.ndarray,
    scores: np.ndarray,
    sums: np.ndarray,
    maxima: np.ndarray,
    totals: np.ndarray,
    item: int,
) -> None:
    """Take keys `start` to `end` of the sequence on `pages` into the rows' sums.

    `visible` keys are seen by the first `group` rows, one more by each next `group`, `reach` of them at most.
    """
    lowest = max(start, visible - reach)
    for block in range(lowest // BLOCK * BLOCK, end, BLOCK):
        size = min(BLOCK, end - block)
        groups = (size + LANES - 1) // LANES
        # Whole lane groups before `lowest` are left out: their weights would be exactly 0.
        begin = max(0, lowest - block) // LANES * LANES
        _score_block(rows, queries, k_pages, k_scales, pages, kv_head, block, begin, size, gathered, scores, item)
        seen = visible - block
        _softmax_block(rows, group, begin, groups, size, seen - reach, seen, soft_cap, scores, sums, maxima, totals)
        _value_block(rows, scores, v_pages, v_scales, pages, kv_head, block, begin, size, sums, item)


@njit(nogil=True, cache=True, error_model="numpy")
def _load_queries(
    q: np.ndarray, token: Any, head: Any, rows: int, group: int, scale: np.float32, queries: np.ndarray
) -> None:
    """Scaled queries of `rows` rows: `group` heads from `head` on of each token from `token` on."""
    for r in range(rows):
        for d in range(q.shape[2]):
            queries[r, d] = q[token + r // group, head + r % group, d] * scale


@njit(nogil=True, cache=True, error_model="numpy")
def _store_averages(
    sums: np.ndarray, totals: np.ndarray, rows: int, group: int, token: Any, head: Any, out: np.ndarray
) -> None:
    """What the rows have summed, over their weights, to where `_load_queries` took them from."""
    for r in range(rows):
        for d in range(out.shape[2]):
            out[token + r // group, head + r % group, d] = sums[r, d] / totals[r]


@njit(nogil=True, cache=True, error_model="numpy")
def _split(scratch: np.ndarray, rows: int, depth: int) -> tuple[np.ndarray, ...]:
    """Scores, scaled queries, sums, running maxima, running totals, gathered keys."""
    size = rows * depth
    scores, rest = scratch[: rows * BLOCK].reshape(rows, BLOCK), scratch[rows * BLOCK :]
    queries, sums = rest[:size].reshape(rows, depth), rest[size : 2 * size].reshape(rows, depth)
    maxima, totals = rest[2 * size : 2 * size + rows], rest[2 * size + rows : 2 * size + 2 * rows]
    gathered = rest[2 * size + 2 * rows :][: LANES * depth].reshape(depth, LANES)
    return scores, queries, sums, maxima, totals, gathered


@njit(nogil=True, cache=True, error_model="numpy")
def paged_attention(
    q: np.ndarray,
    k_pages: np.ndarray,
    v_pages: np.ndarray,
    k_scales: np.ndarray,
    v_scales: np.ndarray,
    page_table: np.ndarray,
    q_starts: np.ndarray,
    seq_lens: np.ndarray,
    tiles: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
    scale: np.float32,
    window: int = 0,
    soft_cap: np.float32 = NO_SOFT_CAP,
    item: int = 4,
) -> None:
    """Attend for the given tiles; tiles are independent, so threads may share them out in any way.

    Nothing is checked: indices come from a validated batch.

    Args:
        q: float32 [T, query heads, head_dim], contiguous; head_dim a multiple of 16.
        k_pages: [pages, kv_heads, head_dim, page_size], contiguous; its memory holds numbers of `item` bytes.
        v_pages: [pages, kv_heads, page_size, head_dim], as `k_pages`; page_size divides 16 or is a multiple of it.
        k_scales: float32 [pages, kv_heads, page_size], what one of a token's int8 numbers is worth; not read otherwise.
        v_scales: as `k_scales`.
        page_table: int32 [R, max_pages].
        q_starts: int32 [R + 1].
        seq_lens: int32 [R], new tokens included.
        tiles: int32 [n, TILE_FIELDS]; see `plan_tiles` and `shared_tiles`.
        scratch: float32 [>= scratch_floats(group, head_dim)], one per thread.
        out: float32 [T, query heads, head_dim], contiguous; written at the tiles' tokens and heads.
        scale: factor on the scores.
        window: tokens that a token sees, itself included; 0: all up to itself.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)` before the softmax; 0: they stay.
        item: 4: keys and values are float32; 2: float16; 1: int8.

    """
    heads, depth = q.shape[1], q.shape[2]
    group = heads // v_pages.shape[1]
    positions = max(1, TILE_ROWS // group)
    max_rows = positions * group
    scores, queries, sums, maxima, totals, gathered = _split(scratch, max_rows, depth)
    for tile in range(tiles.shape[0]):
        kv_head, first = np.int64(tiles[tile, KV_HEAD]), np.int64(tiles[tile, FIRST])
        members = 1 + np.int64(tiles[tile, OTHERS])
        # A window hides keys of a block from some rows and not from others, so each row goes by itself.
        shared = np.int64(tiles[tile, SHARED_BLOCKS]) * BLOCK if window == 0 else 0
        for member in range(members):
            row = np.int64(tiles[tile, ROW if member == 0 else OTHERS + member])
            start, end = np.int64(q_starts[row]), np.int64(q_starts[row + 1])
            count = min(positions, end - start - first)
            at = member * group
            _load_queries(q, start + first, kv_head * group, count * group, group, scale, queries[at:])
            sums[at : at + count * group], totals[at : at + count * group] = 0.0, 0.0
            maxima[at : at + count * group] = -np.inf
        if shared > 0:
            rows = members * group
            _attend_keys(
                rows, rows, shared, shared, 0, shared, queries, k_pages, v_pages, k_scales, v_scales,
                page_table[np.int64(tiles[tile, ROW])], kv_head, soft_cap, gathered, scores, sums, maxima, totals, item,
            )  # fmt: skip
        for member in range(members):
            row = np.int64(tiles[tile, ROW if member == 0 else OTHERS + member])
            start, end = np.int64(q_starts[row]), np.int64(q_starts[row + 1])
            count = min(positions, end - start - first)
            at, rows = member * group, count * group
            # Keys that the tile's first token sees; each next token sees one more.
            visible = seq_lens[row] - (end - start) + first + 1
            longest = visible + count - 1
            reach = np.int64(window) if window > 0 else longest
            _attend_keys(
                rows, group, visible, reach, shared, longest, queries[at:], k_pages, v_pages, k_scales, v_scales,
                page_table[row], kv_head, soft_cap, gathered, scores[at:], sums[at:], maxima[at:], totals[at:], item,
            )  # fmt: skip
            _store_averages(sums[at:], totals[at:], rows, group, start + first, kv_head * group, out)


def plan_tiles(extend_lens: np.ndarray, kv_heads: int, group: int) -> np.ndarray:
    """All tiles of a batch, those of one row and kv head in a run.

    Args:
        extend_lens: integers [R], new tokens of each row.
        kv_heads: kv heads of the model.
        group: query heads per kv head.

    Returns:
        int32 [n, TILE_FIELDS] for `paged_attention`.

    """
    positions = tile_positions(group)
    per_row = -(-np.asarray(extend_lens, dtype=np.int64) // positions)
    rows = np.repeat(np.arange(len(per_row)), per_row * kv_heads)
    starts = np.cumsum(per_row * kv_heads) - per_row * kv_heads
    heads, index = np.divmod(np.arange(len(rows)) - starts[rows], per_row[rows])
    tiles = np.zeros((len(rows), TILE_FIELDS), dtype=np.int32)
    tiles[:, ROW], tiles[:, KV_HEAD], tiles[:, FIRST] = rows, heads, index * positions
    return tiles
