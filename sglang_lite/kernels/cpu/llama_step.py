"""All layers of a decoder on a batch of new tokens, and its head, each as one call that every thread of a team makes.

The form is Llama's, with what its relatives add where a layer's table says so: biases, norms of query and key heads, norms
behind attention and MLP, windows, bounded scores, GeGLU, scaled embeddings.

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
from sglang_lite.kernels.cpu.norm import quantize_row, rms_norm, rms_norm_lanes, subtract_rounded
from sglang_lite.kernels.cpu.paged_attention import (
    FIRST,
    KV_HEAD,
    OTHERS,
    ROW,
    TILE_FIELDS,
    TILE_ROWS,
    paged_attention,
    scratch_floats,
)
from sglang_lite.kernels.cpu.rope import rotate, scatter_pairs
from sglang_lite.kernels.cpu.silu import gelu_mul, silu_mul
from sglang_lite.kernels.cpu.simd_int8 import load_float, load_int64, store_float, store_half, store_signed
from sglang_lite.kernels.cpu.simd_rows import add_rows, round_rows
from sglang_lite.kernels.cpu.simd_sync import call_attend, call_linear, int64_pointer
from sglang_lite.kernels.cpu.team import FIELDS, GIVE_WAY, NEXT_THREAD, SYNC, THREADS, finish, next_units, phase_address

_fetch_add: Any = simd.fetch_add
_float32: Any = simd.float32_pointer
_int32: Any = simd.int32_pointer
_int64: Any = int64_pointer
_soft_cap_in_place: Any = simd.soft_cap_in_place

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
REST, REST_SCALES, REST_SUMS, HEAD_ROUNDS = range(53, 57)
# ... bytes of a number in the KV pool, whether the gate is GELU, whether heads of queries and keys are normed ...
KV_ITEM, GELU, HEAD_NORMS = range(57, 60)
# ... of a head in parts, (row, sixteen columns) pairs as int64 [n, 2], whose logits are float32 [n, 16] ...
PICKS, NUM_PICKS = range(60, 62)
# ... what a token's int8 numbers are worth, float32 [layers, pages, kv_heads, page_size] for keys and for values ...
K_SCALES, V_SCALES = range(62, 64)
# ... and for each layer its norms and its weights, each as the address of the product for its storage and its own, then
# what it may lack (0): biases, norms of heads, norms behind attention and MLP, a window.
LAYER_TABLE = 64
(
    ATTN_NORM, MLP_NORM, Q_LINEAR, Q_WEIGHT, K_LINEAR, K_WEIGHT, V_LINEAR, V_WEIGHT, O_LINEAR, O_WEIGHT,
    GATE_LINEAR, GATE_WEIGHT, UP_LINEAR, UP_WEIGHT, DOWN_LINEAR, DOWN_WEIGHT,
    Q_BIAS, K_BIAS, V_BIAS, O_BIAS, GATE_BIAS, UP_BIAS, DOWN_BIAS, Q_NORM, K_NORM, ATTN_POST_NORM, MLP_POST_NORM, WINDOW,
) = range(28)  # fmt: skip
LAYER_FIELDS = 28

EPS, SCALE, ATTENTION_CAP, LOGIT_CAP, EMBED_SCALE = range(5)
"""Numbers at `FLOATS`, float32; a cap of 0 bounds nothing."""

LAYER_PHASES = 7
HEAD_PHASES = 3

_ROW_BLOCK = 32
"""Rows whose intermediate columns stay in the first-level cache."""


def step_phases(layers: int) -> int:
    """Phases of one step over all layers, embedding and the last norm behind an MLP included."""
    return 2 + LAYER_PHASES * layers


def scratch_bytes(group: int, head_dim: int) -> int:
    """Scratch of one thread, in bytes, a multiple of 64."""
    attention = 4 * scratch_floats(group, head_dim)
    columns = 4 * _ROW_BLOCK * max(64, head_dim)
    return -(-max(attention, columns) // 64) * 64


@njit(nogil=True, cache=True, error_model="numpy")
def _embed(s: np.ndarray, thread: int, phase: int) -> None:
    victim, done, hidden = 0, 0, s[HIDDEN]
    ids, scale = s[IDS], load_float(s[FLOATS] + 4 * EMBED_SCALE)
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], s[TOKENS], victim)
        if first == last:
            break
        for r in range(first, last):
            token = load_int64(ids + 8 * r)
            row = s[X] + 4 * hidden * r
            unpack_row(s[EMBED_KIND], s[EMBED], hidden // 32, token, row)
            if scale != 1.0:
                for i in range(hidden):
                    store_float(row + 4 * i, load_float(row + 4 * i) * scale)
        done += last - first
    finish(phase, done, s[TOKENS], s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _norm(s: np.ndarray, thread: int, phase: int, x: int, weight: int, rows: int, post_weight: int) -> None:
    """Rows of x, normed and as int8, into the `NORMED` and `A` rows.

    `post_weight` not 0: what `NORMED` holds is normed with it and added to x before. `weight` 0: that is all.
    """
    victim, done, hidden = 0, 0, s[HIDDEN]
    groups = hidden // 32
    eps = load_float(s[FLOATS])
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], rows, victim)
        if first == last:
            break
        for r in range(first, last):
            row, normed = x + 4 * hidden * r, s[NORMED] + 4 * hidden * r
            if post_weight != 0:
                rms_norm(normed, post_weight, eps, groups, normed)
                add_rows(row, normed, 2 * groups)
            if weight != 0:
                rms_norm(row, weight, eps, groups, normed)
                quantize_row(
                    normed, groups, s[A] + hidden * r, s[A_SCALES] + 8 * groups * r, s[A_SUMS] + 4 * groups * r
                )
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
    """Sixteen columns of a head at a time, or a head where heads are normed or rounded: project and put by (`_place_head`)."""
    depth, heads, kv_heads = s[DEPTH], s[HEADS], s[KV_HEADS]
    blocks = depth // 16
    span = blocks if s[HEAD_NORMS] or s[KV_ITEM] == 1 else 1
    parts = blocks // span
    units = (heads + 2 * kv_heads) * parts
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], units, victim)
        if first == last:
            break
        for unit in range(first, last):
            head, block = unit // parts, unit % parts * span
            part = 0 if head < heads else (1 if head < heads + kv_heads else 2)
            own = head if part == 0 else head - heads - (part - 1) * kv_heads
            column = own * blocks + block
            for row in range(0, s[TOKENS], _ROW_BLOCK):
                rows = min(_ROW_BLOCK, s[TOKENS] - row)
                _project_block(
                    s, s[at + Q_LINEAR + 2 * part], s[at + Q_WEIGHT + 2 * part], row, rows, column, column + span,
                    scratch, 64 * span,
                )  # fmt: skip
                for i in range(rows):
                    pairs = scratch + 64 * span * i
                    if s[at + Q_BIAS + part] != 0:
                        add_rows(pairs, s[at + Q_BIAS + part] + 64 * column, span)
                    if s[HEAD_NORMS] and part < 2:
                        rms_norm_lanes(pairs, s[at + Q_NORM + part], load_float(s[FLOATS]), span)
                    _place_head(s, layer, part, own, block, span, row + i, pairs)
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


@njit(nogil=True, cache=True, error_model="numpy")
def _place_head(s: np.ndarray, layer: int, part: int, head: int, block: int, span: int, t: int, pairs: int) -> None:
    """Turn queries (`part` 0) and keys (1) of token `t`; put queries by, keys and values (2) into their page."""
    depth, page_size, item = s[DEPTH], s[PAGE_SIZE], s[KV_ITEM]
    if part < 2:
        turn = 2 * depth * load_int64(s[POSITIONS] + 8 * t)
        for i in range(span):
            rotate(pairs + 64 * i, s[COS] + turn, s[SIN] + turn, block + i)
    if part == 0:
        for i in range(span):
            scatter_pairs(pairs + 64 * i, s[Q] + 4 * depth * (t * s[HEADS] + head), 4, depth, block + i)
        return
    slot = load_int64(s[SLOTS] + 8 * t)
    page, offset = slot // page_size, slot % page_size
    number = (layer * s[PAGES] + page) * s[KV_HEADS] + head
    place = item * number * depth * page_size
    if item == 1:
        scales = s[K_SCALES] if part == 1 else s[V_SCALES]
        store_float(scales + 4 * (number * page_size + offset), round_rows(pairs, span))
    if part == 1:
        for i in range(span):
            scatter_pairs(pairs + 64 * i, s[K_POOL] + place + item * offset, item * page_size, depth, block + i, item)
        return
    out = s[V_POOL] + place + item * (offset * depth + 16 * block)
    for j in range(16 * span):
        if item == 1:
            store_signed(out + j, load_float(pairs + 4 * j))
        elif item == 2:
            store_half(out + 2 * j, load_float(pairs + 4 * j))
        else:
            store_float(out + 4 * j, load_float(pairs + 4 * j))


def _attend_tiles(block: int, layer: int, first: int, last: int, scratch_at: int) -> None:
    """Tiles of queries against their keys; what they give, as it is and as int8."""
    s = carray(_int64(block), (load_int64(block),))
    depth, heads, kv_heads, page_size, pages = s[DEPTH], s[HEADS], s[KV_HEADS], s[PAGE_SIZE], s[PAGES]
    group = heads // kv_heads
    width = heads * depth
    pool_bytes = s[KV_ITEM] * layer * pages * kv_heads * depth * page_size
    q = carray(_float32(s[Q]), (s[TOKENS], heads, depth))
    out = carray(_float32(s[ATTENDED]), (s[TOKENS], heads, depth))
    # Of these two, shape and address are used; what their numbers are, `KV_ITEM` says.
    k_pages = carray(_float32(s[K_POOL] + pool_bytes), (pages, kv_heads, depth, page_size))
    v_pages = carray(_float32(s[V_POOL] + pool_bytes), (pages, kv_heads, page_size, depth))
    first_scale = 4 * layer * pages * kv_heads * page_size
    k_scales = carray(_float32(s[K_SCALES] + first_scale), (pages, kv_heads, page_size))
    v_scales = carray(_float32(s[V_SCALES] + first_scale), (pages, kv_heads, page_size))
    page_table = carray(_int32(s[PAGE_TABLE]), (s[ROWS], s[TABLE_WIDTH]))
    q_starts = carray(_int32(s[Q_STARTS]), (s[ROWS] + 1,))
    seq_lens = carray(_int32(s[SEQ_LENS]), (s[ROWS],))
    tiles = carray(_int32(s[TILES]), (s[NUM_TILES], TILE_FIELDS))
    scratch = carray(_float32(scratch_at), (s[SCRATCH_BYTES] // 4,))
    scale, cap = load_float(s[FLOATS] + 4 * SCALE), load_float(s[FLOATS] + 4 * ATTENTION_CAP)
    positions = max(1, TILE_ROWS // group)
    paged_attention(
        q, k_pages, v_pages, k_scales, v_scales, page_table, q_starts, seq_lens, tiles[first:last], scratch, out, scale,
        s[LAYER_TABLE + layer * LAYER_FIELDS + WINDOW], cap, s[KV_ITEM],
    )  # fmt: skip
    for tile in range(first, last):
        column = np.int64(tiles[tile, KV_HEAD]) * group * depth
        for member in range(1 + np.int64(tiles[tile, OTHERS])):
            row = np.int64(tiles[tile, ROW if member == 0 else OTHERS + member])
            start, end = np.int64(q_starts[row]), np.int64(q_starts[row + 1])
            begin = start + np.int64(tiles[tile, FIRST])
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
    bias: int,
    out: int,
    thread: int,
    phase: int,
) -> None:
    """Add a product to the residual rows, sixteen columns at a time; or put it into other rows, at `out`."""
    hidden, add = s[HIDDEN], 1 if out == s[X] else 0
    units = hidden // 16
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, s[THREADS], units, victim)
        if first == last:
            break
        call_linear(
            function, weight, x, a, scales, sums, out + 64 * first, 4 * hidden, s[TOKENS], groups, first, last, add
        )
        if bias != 0:
            for r in range(s[TOKENS]):
                add_rows(out + 64 * first + 4 * hidden * r, bias + 64 * first, last - first)
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
                    if s[at + GATE_BIAS] != 0:
                        add_rows(gate, s[at + GATE_BIAS] + 128 * unit, 2)
                        add_rows(gate + 128, s[at + UP_BIAS] + 128 * unit, 2)
                    if s[GELU]:
                        gelu_mul(gate, gate + 128, out, 32)
                    else:
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
    post = 0
    for layer in range(s[LAYERS]):
        at = LAYER_TABLE + layer * LAYER_FIELDS
        number = 1 + layer * LAYER_PHASES
        _norm(s, thread, phase_address(sync, number, threads), s[X], s[at + ATTN_NORM], s[TOKENS], post)
        _queries_keys_values(s, layer, at, thread, phase_address(sync, number + 1, threads), scratch)
        _attend(s, layer, thread, phase_address(sync, number + 2, threads), scratch)
        post = s[at + ATTN_POST_NORM]
        _add_projection(
            s, s[at + O_LINEAR], s[at + O_WEIGHT], s[ATTENDED], s[B], s[B_SCALES], s[B_SUMS], width // 32,
            s[at + O_BIAS], s[NORMED if post else X], thread, phase_address(sync, number + 3, threads),
        )  # fmt: skip
        _norm(s, thread, phase_address(sync, number + 4, threads), s[X], s[at + MLP_NORM], s[TOKENS], post)
        _gate(s, at, thread, phase_address(sync, number + 5, threads), scratch)
        post = s[at + MLP_POST_NORM]
        _add_projection(
            s, s[at + DOWN_LINEAR], s[at + DOWN_WEIGHT], s[GATED], s[C], s[C_SCALES], s[C_SUMS], s[INNER] // 32,
            s[at + DOWN_BIAS], s[NORMED if post else X], thread, phase_address(sync, number + 6, threads),
        )  # fmt: skip
    last = phase_address(sync, 1 + LAYER_PHASES * s[LAYERS], threads)
    _norm(s, thread, last, s[X], 0, s[TOKENS] if post else 0, post)


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
    _norm(s, thread, sync, s[X], s[FINAL_NORM], s[TOKENS], 0)
    _rest(s, thread, phase_address(sync, 1, threads))
    phase = phase_address(sync, 2, threads)
    hidden = s[HIDDEN]
    units, cap = s[VOCAB_BLOCKS], load_float(s[FLOATS] + 4 * LOGIT_CAP)
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
            if cap > 0:
                for r in range(s[TOKENS]):
                    _soft_cap_in_place(out + 64 * units * r, 1, cap)
        done += last - first
    finish(phase, done, units, s[GIVE_WAY])


def _picked_head_worker(data: Any) -> None:
    s = carray(data, (carray(data, (1,))[0],))
    thread = _fetch_add(s.ctypes.data + 8 * NEXT_THREAD, 1)
    if thread >= s[THREADS]:
        return
    threads, sync = s[THREADS], s[SYNC]
    _norm(s, thread, sync, s[X], s[FINAL_NORM], s[TOKENS], 0)
    _rest(s, thread, phase_address(sync, 1, threads))
    phase = phase_address(sync, 2, threads)
    hidden = s[HIDDEN]
    groups = hidden // 32
    units, cap = s[NUM_PICKS], load_float(s[FLOATS] + 4 * LOGIT_CAP)
    victim, done = 0, 0
    while True:
        first, last, victim = next_units(phase, thread, threads, units, victim)
        if first == last:
            break
        for unit in range(first, last):
            row, block = load_int64(s[PICKS] + 16 * unit), load_int64(s[PICKS] + 16 * unit + 8)
            out = s[LOGITS] + 64 * unit
            _project_block(s, s[HEAD_LINEAR], s[HEAD], row, 1, block, block + 1, out, 64)
            if s[HEAD_ROUNDS]:
                call_linear(
                    s[HEAD_LINEAR], s[HEAD], s[NORMED] + 4 * hidden * row, s[REST] + hidden * row,
                    s[REST_SCALES] + 8 * groups * row, s[REST_SUMS] + 4 * groups * row, out, 64,
                    1, groups, block, block + 1, 1,
                )  # fmt: skip
            if cap > 0:
                _soft_cap_in_place(out, 1, cap)
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
def picked_head_worker() -> int:
    """As `head_worker` for `NUM_PICKS` pieces of the logits, those of `PICKS`; each is the same to the bit as there."""
    return _address(types.void(types.CPointer(types.int64)), _picked_head_worker)


@cache
def attend_function() -> int:
    """Address of the C function that `ATTEND` names; the first call compiles or loads it."""
    return _address(types.void(*[types.int64] * 5), _attend_tiles)


def _address(signature: Any, function: Any) -> int:
    address = cfunc(signature, cache=True)(function).address
    assert address is not None, "the compiled step has no address"
    return address
