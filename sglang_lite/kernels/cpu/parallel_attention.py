"""`paged_attention` shared out over a team of threads, which claim tiles from a common counter."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types
from numba.np.numpy_support import carray

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.paged_attention import NO_SOFT_CAP, TILE_FIELDS, paged_attention
from sglang_lite.kernels.cpu.threads import KernelThreads

_fetch_add: Any = simd.fetch_add
_float32: Any = simd.float32_pointer
_int32: Any = simd.int32_pointer

# What lies where in the int64 block that the threads share.
_NEXT_TILE, _NEXT_THREAD, _CLAIM, _THREADS, _SCRATCH_FLOATS = range(5)
_Q, _K, _V, _K_SCALES, _V_SCALES, _TABLE, _STARTS, _LENS, _TILES, _SCRATCH, _OUT, _FLOATS = range(5, 17)
_TOKENS, _HEADS, _DEPTH, _PAGES, _KV_HEADS, _PAGE_SIZE, _ROWS, _TABLE_WIDTH, _NUM_TILES, _WINDOW, _ITEM = range(17, 28)
_LENGTH = 28

_CLAIMS_PER_THREAD = 8


def paged_attention_on(
    threads: KernelThreads,
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
    """`paged_attention` on all threads of the team, equal to the bit; arguments as there.

    Args:
        threads: a team of at least two.
        q: see `paged_attention`, as the others.
        k_pages: as there.
        v_pages: as there.
        k_scales: as there.
        v_scales: as there.
        page_table: as there.
        q_starts: as there.
        seq_lens: as there.
        tiles: as there.
        scratch: float32 [threads, >= scratch_floats(group, head_dim)].
        out: as there.
        scale: as there.
        window: as there.
        soft_cap: as there.
        item: as there.

    """
    arrays = (q, k_pages, v_pages, k_scales, v_scales, page_table, q_starts, seq_lens, tiles, scratch, out)
    floats = np.array([scale, soft_cap], dtype=np.float32)
    data = np.zeros(_LENGTH, dtype=np.int64)
    # Tiles of one row and kv head are neighbours: a claim of several keeps their keys in one core's cache.
    data[_CLAIM] = max(1, len(tiles) // (threads.count * _CLAIMS_PER_THREAD))
    data[_THREADS : _SCRATCH_FLOATS + 1] = threads.count, scratch.shape[1]
    data[_Q : _FLOATS + 1] = [array.ctypes.data for array in (*arrays, floats)]
    data[_TOKENS:] = *q.shape, k_pages.shape[0], *v_pages.shape[1:3], *page_table.shape, len(tiles), window, item
    threads.run(worker_address(), data)


@cache
def worker_address() -> int:
    """Address of the compiled worker; the first call compiles it or loads it from the cache."""
    address = cfunc(types.void(types.CPointer(types.int64)), cache=True)(_worker).address
    assert address is not None, "the compiled attention worker has no address"
    return address


def _worker(data: Any) -> None:
    """Claim tiles until none is left; runs on every thread of the team."""
    a = carray(data, (_LENGTH,))
    thread = _fetch_add(a.ctypes.data + 8 * _NEXT_THREAD, 1)
    if thread >= a[_THREADS]:
        return
    heads, depth, page_size, rows = a[_HEADS], a[_DEPTH], a[_PAGE_SIZE], a[_ROWS]
    q = carray(_float32(a[_Q]), (a[_TOKENS], heads, depth))
    k_pages = carray(_float32(a[_K]), (a[_PAGES], a[_KV_HEADS], depth, page_size))
    v_pages = carray(_float32(a[_V]), (a[_PAGES], a[_KV_HEADS], page_size, depth))
    k_scales = carray(_float32(a[_K_SCALES]), (a[_PAGES], a[_KV_HEADS], page_size))
    v_scales = carray(_float32(a[_V_SCALES]), (a[_PAGES], a[_KV_HEADS], page_size))
    page_table = carray(_int32(a[_TABLE]), (rows, a[_TABLE_WIDTH]))
    q_starts = carray(_int32(a[_STARTS]), (rows + 1,))
    seq_lens = carray(_int32(a[_LENS]), (rows,))
    tiles = carray(_int32(a[_TILES]), (a[_NUM_TILES], TILE_FIELDS))
    scratch = carray(_float32(a[_SCRATCH]), (a[_THREADS], a[_SCRATCH_FLOATS]))[thread]
    out = carray(_float32(a[_OUT]), (a[_TOKENS], heads, depth))
    floats = carray(_float32(a[_FLOATS]), (2,))
    scale, soft_cap, window = floats[0], floats[1], a[_WINDOW]
    while True:
        first = _fetch_add(a.ctypes.data + 8 * _NEXT_TILE, a[_CLAIM])
        if first >= a[_NUM_TILES]:
            return
        claimed = tiles[first : min(first + a[_CLAIM], a[_NUM_TILES])]
        paged_attention(
            q,
            k_pages,
            v_pages,
            k_scales,
            v_scales,
            page_table,
            q_starts,
            seq_lens,
            claimed,
            scratch,
            out,
            scale,
            window,
            soft_cap,
            a[_ITEM],
        )
