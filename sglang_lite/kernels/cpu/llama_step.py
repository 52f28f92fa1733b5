"""All layers of a Llama on a batch of new tokens, and its head, each as one call that every thread of a team makes.

A step is a sequence of phases; in each, threads share out units of work (`team`). A unit covers all rows and a few
columns, or a few rows and all columns, and what a row becomes depends on nothing but that row and its keys: neither on
the other rows, nor on how the work was shared.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, njit, types
from numba.np.numpy_support import carray

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.linear import unpack_row
from sglang_lite.kernels.cpu.norm import quantize_row, rms_norm, subtract_rounded
from sglang_lite.kernels.cpu.paged_attention import TILE_ROWS, paged_attention, scratch_floats
from sglang_lite.kernels.cpu.rope import rotate, scatter_pairs
from sglang_lite.kernels.cpu.silu import silu_mul
from sglang_lite.kernels.cpu.simd_int8 import load_float, load_int64, store_float
from sglang_lite.kernels.cpu.simd_sync import call_attend, call_linear, int64_pointer
from sglang_lite.kernels.cpu.team import FIELDS, GIVE_WAY, NEXT_THREAD, SYNC, THREADS, finish, next_units, phase_address

_fetch_add: Any = simd.fetch_add
_float32: Any = simd.float32_pointer
_int32: Any = simd.int32_pointer
_int64: Any = int64_pointer

# The int64 block that the threads share, after what every step has: what the model is ...
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, DEPTH, VOCAB_BLOCKS = range(FIELDS, FIELDS + 7)
EMBED_KIND, EMBED, HEAD_LINEAR, HEAD, FINAL_NORM, COS, SIN, FLOATS = range(12, 20)
K_POOL, V_POOL, PAGES, PAGE_SIZE, ATTEND, SCRATCH, SCRATCH_BYTES = range(20, 27)
# ... what the step is about (its arrays as in ForwardBatch and `paged_attention`) ...
TOKENS, ROWS, IDS, POSITIONS, SLOTS, PAGE_TABLE, TABLE_WIDTH = range(27, 34)
Q_STARTS, SEQ_LENS, TILES, NUM_TILES = range(34, 38)
# ... rows in progress: residual, normed, int8 of it; queries, attended, int8 of it; the MLP's inside, int8 of it; logits ...
X, NORMED, A, A_SCALES, A_SUMS, Q, ATTENDED, B, B_SCALES, B_SUMS = range(38, 48)
GATED, C, C_SCALES, C_SUMS, LOGITS = range(48, 53)
# ... the head's second pass: what rounding the final rows lost, as int8, and whether the head's storage rounds at all ...
# ... and for each layer its norms and its weights, each as the address of the product for its storage and its own.
REST, REST_SCALES, REST_SUMS, HEAD_ROUNDS = range(53, 57)
LAYER_TABLE = 57
(
    ATTN_NORM, MLP_NORM, Q_LINEAR, Q_WEIGHT, K_LINEAR, K_WEIGHT, V_LINEAR, V_WEIGHT, O_LINEAR, O_WEIGHT,
    GATE_LINEAR, GATE_WEIGHT, UP_LINEAR, UP_WEIGHT, DOWN_LINEAR, DOWN_WEIGHT,
) = range(16)  # fmt: skip
LAYER_FIELDS = 16

LAYER_PHASES = 7
HEAD_PHASES = 3

_ROW_BLOCK = 32
"""Rows whose intermediate columns stay in the first-level cache."""


def step_phases(layers: int) -> int:
    """Phases of one step over all layers, embedding included."""
    return 1 + LAYER_PHASES * layers


def scratch_bytes(group: int, head_dim: int) -> int:
    """Scratch of one thread, in bytes, a multiple of 64."""
    attention = 4 * scratch_floats(group, head_dim)
    columns = 4 * _ROW_BLOCK * 64
    return -(-max(attention, columns) // 64) * 64


@njit(nogil=True, cache=True, error_model="numpy")
def _embed(s: np.ndarray, thread: int, phase: int) -> None:
    victim, done, hidden = 0, 0, s[HIDDEN]
    ids = s[IDS]
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], s[TOKENS], victim)
        if first == last:
            break
        for r in range(first, last):
            token = load_int64(ids + 8 * r)
            unpack_row(s[EMBED_KIND], s[EMBED], hidden // 32, token, s[X] + 4 * hidden * r)
        done += last - first
    finish(phase, done, s[TOKENS], s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _norm(s: np.ndarray, thread: int, phase: int, x: int, weight: int, rows: int) -> None:
    """Rows of x, normed and as int8, into the `NORMED` and `A` rows."""
    victim, done, hidden = 0, 0, s[HIDDEN]
    groups = hidden // 32
    eps = load_float(s[FLOATS])
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], rows, victim)
        if first == last:
            break
        for r in range(first, last):
            normed = s[NORMED] + 4 * hidden * r
            rms_norm(x + 4 * hidden * r, weight, eps, groups, normed)
            quantize_row(normed, groups, s[A] + hidden * r, s[A_SCALES] + 8 * groups * r, s[A_SUMS] + 4 * groups * r)
        done += last - first
    finish(phase, done, rows, s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _project_block(
    s: np.ndarray, function: int, weight: int, row: int, rows: int, first: int, last: int, out: int, stride: int
) -> None:
    """Columns of a product with the normed rows `row ...`, written to `out`."""
    hidden = s[HIDDEN]
    groups = hidden // 32
    call_linear(
        function, weight, s[NORMED] + 4 * hidden * row, s[A] + hidden * row, s[A_SCALES] + 8 * groups * row,
        s[A_SUMS] + 4 * groups * row, out, stride, rows, groups, first, last, 0,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _queries_keys_values(s: np.ndarray, layer: int, at: int, thread: int, phase: int, scratch: int) -> None:
    """Sixteen columns of a head at a time: project, turn queries and keys, put queries by and the others into their pages."""
    depth, heads, kv_heads, page_size = s[DEPTH], s[HEADS], s[KV_HEADS], s[PAGE_SIZE]
    blocks = depth // 16
    page_bytes = 4 * kv_heads * depth * page_size
    k_pages = s[K_POOL] + layer * s[PAGES] * page_bytes
    v_pages = s[V_POOL] + layer * s[PAGES] * page_bytes
    units = (heads + 2 * kv_heads) * blocks
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], units, victim)
        if first == last:
            break
        for unit in range(first, last):
            head, block = unit // blocks, unit % blocks
            part = 0 if head < heads else (1 if head < heads + kv_heads else 2)
            column = unit - (0 if part == 0 else (heads + (part - 1) * kv_heads) * blocks)
            kv_head = head - heads - (part - 1) * kv_heads
            for row in range(0, s[TOKENS], _ROW_BLOCK):
                rows = min(_ROW_BLOCK, s[TOKENS] - row)
                _project_block(
                    s, s[at + Q_LINEAR + 2 * part], s[at + Q_WEIGHT + 2 * part], row, rows, column, column + 1,
                    scratch, 64,
                )  # fmt: skip
                for i in range(rows):
                    t, pairs = row + i, scratch + 64 * i
                    if part < 2:
                        turn = 2 * depth * load_int64(s[POSITIONS] + 8 * t)
                        rotate(pairs, s[COS] + turn, s[SIN] + turn, block)
                    if part == 0:
                        scatter_pairs(pairs, s[Q] + 4 * depth * (t * heads + head), 4, depth, block)
                        continue
                    slot = load_int64(s[SLOTS] + 8 * t)
                    page, offset = slot // page_size, slot % page_size
                    head_at = page * page_bytes + 4 * kv_head * depth * page_size
                    if part == 1:
                        scatter_pairs(pairs, k_pages + head_at + 4 * offset, 4 * page_size, depth, block)
                    else:
                        out = v_pages + head_at + 4 * (offset * depth + 16 * block)
                        for j in range(16):
                            store_float(out + 4 * j, load_float(pairs + 4 * j))
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


def _attend_tiles(block: int, layer: int, first: int, last: int, scratch_at: int) -> None:
    """Tiles of queries against their keys; what they give, as it is and as int8."""
    s = carray(_int64(block), (load_int64(block),))
    depth, heads, kv_heads, page_size, pages = s[DEPTH], s[HEADS], s[KV_HEADS], s[PAGE_SIZE], s[PAGES]
    group = heads // kv_heads
    width = heads * depth
    pool_bytes = 4 * layer * pages * kv_heads * depth * page_size
    q = carray(_float32(s[Q]), (s[TOKENS], heads, depth))
    out = carray(_float32(s[ATTENDED]), (s[TOKENS], heads, depth))
    k_pages = carray(_float32(s[K_POOL] + pool_bytes), (pages, kv_heads, depth, page_size))
    v_pages = carray(_float32(s[V_POOL] + pool_bytes), (pages, kv_heads, page_size, depth))
    page_table = carray(_int32(s[PAGE_TABLE]), (s[ROWS], s[TABLE_WIDTH]))
    q_starts = carray(_int32(s[Q_STARTS]), (s[ROWS] + 1,))
    seq_lens = carray(_int32(s[SEQ_LENS]), (s[ROWS],))
    tiles = carray(_int32(s[TILES]), (s[NUM_TILES], 3))
    scratch = carray(_float32(scratch_at), (s[SCRATCH_BYTES] // 4,))
    scale = load_float(s[FLOATS] + 4)
    positions = max(1, TILE_ROWS // group)
    paged_attention(
        q, k_pages, v_pages, page_table, q_starts, seq_lens, tiles[first:last], scratch, out, scale,
        0, np.float32(0.0),
    )  # fmt: skip
    for tile in range(first, last):
        start, end = np.int64(q_starts[tiles[tile, 0]]), np.int64(q_starts[tiles[tile, 0] + 1])
        begin = start + np.int64(tiles[tile, 2])
        column = np.int64(tiles[tile, 1]) * group * depth
        for t in range(begin, min(begin + positions, end)):
            at = t * width + column
            quantize_row(
                s[ATTENDED] + 4 * at, group * depth // 32, s[B] + at, s[B_SCALES] + at // 4, s[B_SUMS] + at // 8
            )


@njit(nogil=True, cache=True, error_model="numpy")
def _attend(s: np.ndarray, layer: int, thread: int, phase: int, scratch: int) -> None:
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], s[NUM_TILES], victim)
        if first == last:
            break
        call_attend(s[ATTEND], s.ctypes.data, layer, first, last, scratch)
        done += last - first
    finish(phase, done, s[NUM_TILES], s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _add_projection(
    s: np.ndarray,
    function: int,
    weight: int,
    x: int,
    a: int,
    scales: int,
    sums: int,
    groups: int,
    thread: int,
    phase: int,
) -> None:
    """Add a product to the residual rows, sixteen columns at a time."""
    hidden = s[HIDDEN]
    units = hidden // 16
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], units, victim)
        if first == last:
            break
        call_linear(
            function, weight, x, a, scales, sums, s[X] + 64 * first, 4 * hidden, s[TOKENS], groups, first, last, 1
        )
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _gate(s: np.ndarray, at: int, thread: int, phase: int, scratch: int) -> None:
    """32 columns of gate and up at a time, their product as it is and as int8."""
    inner = s[INNER]
    units = inner // 32
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], units, victim)
        if first == last:
            break
        for unit in range(first, last):
            for row in range(0, s[TOKENS], _ROW_BLOCK):
                rows = min(_ROW_BLOCK, s[TOKENS] - row)
                columns = 2 * unit
                _project_block(
                    s, s[at + GATE_LINEAR], s[at + GATE_WEIGHT], row, rows, columns, columns + 2, scratch, 256
                )
                _project_block(
                    s, s[at + UP_LINEAR], s[at + UP_WEIGHT], row, rows, columns, columns + 2, scratch + 128, 256
                )
                for i in range(rows):
                    gate, t = scratch + 256 * i, row + i
                    out = s[GATED] + 4 * (t * inner + 32 * unit)
                    silu_mul(gate, gate + 128, out, 32)
                    group = t * units + unit
                    quantize_row(out, 1, s[C] + 32 * group, s[C_SCALES] + 8 * group, s[C_SUMS] + 4 * group)
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


def _layers_worker(data: Any) -> None:
    s = carray(data, (carray(data, (1,))[0],))
    thread = _fetch_add(s.ctypes.data + 8 * NEXT_THREAD, 1)
    if thread >= s[THREADS]:
        return
    scratch = s[SCRATCH] + thread * s[SCRATCH_BYTES]
    threads, sync = s[THREADS], s[SYNC]
    width = s[HEADS] * s[DEPTH]
    _embed(s, thread, sync)
    for layer in range(s[LAYERS]):
        at = LAYER_TABLE + layer * LAYER_FIELDS
        number = 1 + layer * LAYER_PHASES
        _norm(s, thread, phase_address(sync, number, threads), s[X], s[at + ATTN_NORM], s[TOKENS])
        _queries_keys_values(s, layer, at, thread, phase_address(sync, number + 1, threads), scratch)
        _attend(s, layer, thread, phase_address(sync, number + 2, threads), scratch)
        _add_projection(
            s, s[at + O_LINEAR], s[at + O_WEIGHT], s[ATTENDED], s[B], s[B_SCALES], s[B_SUMS], width // 32,
            thread, phase_address(sync, number + 3, threads),
        )  # fmt: skip
        _norm(s, thread, phase_address(sync, number + 4, threads), s[X], s[at + MLP_NORM], s[TOKENS])
        _gate(s, at, thread, phase_address(sync, number + 5, threads), scratch)
        _add_projection(
            s, s[at + DOWN_LINEAR], s[at + DOWN_WEIGHT], s[GATED], s[C], s[C_SCALES], s[C_SUMS], s[INNER] // 32,
            thread, phase_address(sync, number + 6, threads),
        )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _rest(s: np.ndarray, thread: int, phase: int) -> None:
    """What rounding the normed rows lost, as int8: logits are compared with each other, so the head takes both parts."""
    victim, done, hidden = 0, 0, s[HIDDEN]
    groups = hidden // 32
    rows = s[TOKENS] if s[HEAD_ROUNDS] else 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], rows, victim)
        if first == last:
            break
        for r in range(first, last):
            normed = s[NORMED] + 4 * hidden * r
            subtract_rounded(normed, groups, s[A] + hidden * r, s[A_SCALES] + 8 * groups * r)
            quantize_row(
                normed, groups, s[REST] + hidden * r, s[REST_SCALES] + 8 * groups * r, s[REST_SUMS] + 4 * groups * r
            )
        done += last - first
    finish(phase, done, rows, s[GIVE_WAY])


def _head_worker(data: Any) -> None:
    s = carray(data, (carray(data, (1,))[0],))
    thread = _fetch_add(s.ctypes.data + 8 * NEXT_THREAD, 1)
    if thread >= s[THREADS]:
        return
    threads, sync = s[THREADS], s[SYNC]
    _norm(s, thread, sync, s[X], s[FINAL_NORM], s[TOKENS])
    _rest(s, thread, phase_address(sync, 1, threads))
    phase = phase_address(sync, 2, threads)
    hidden = s[HIDDEN]
    units = s[VOCAB_BLOCKS]
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, threads, units, victim)
        if first == last:
            break
        for block in range(first, last):
            out = s[LOGITS] + 64 * block
            _project_block(s, s[HEAD_LINEAR], s[HEAD], 0, s[TOKENS], block, block + 1, out, 64 * units)
            if s[HEAD_ROUNDS]:
                call_linear(
                    s[HEAD_LINEAR], s[HEAD], s[NORMED], s[REST], s[REST_SCALES], s[REST_SUMS], out, 64 * units,
                    s[TOKENS], hidden // 32, block, block + 1, 1,
                )  # fmt: skip
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


@cache
def layers_worker() -> int:
    """Address of the C function `void f(int64_t *block)` that computes the layers; the first call compiles or loads it."""
    return _address(types.void(types.CPointer(types.int64)), _layers_worker)


@cache
def head_worker() -> int:
    """As `layers_worker` for the final norm and the head: `TOKENS` rows at `X` to `LOGITS`."""
    return _address(types.void(types.CPointer(types.int64)), _head_worker)


@cache
def attend_function() -> int:
    """Address of the C function that `ATTEND` names; the first call compiles or loads it."""
    return _address(types.void(*[types.int64] * 5), _attend_tiles)


def _address(signature: Any, function: Any) -> int:
    address = cfunc(signature, cache=True)(function).address
    assert address is not None, "the compiled step has no address"
    return address
