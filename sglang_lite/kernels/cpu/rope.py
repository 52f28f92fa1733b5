"""Rotary positions, sixteen columns at a time: eight pairs of a head, and where the results go."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.simd_int8 import load_float, store_float, store_half, store_signed
from sglang_lite.kernels.cpu.simd_rows import rotate_pairs


def pair_order(head_dim: int) -> np.ndarray:
    """Columns of a head in the order that puts eight first halves beside their eight second halves; int64 [head_dim].

    Position i of a head whose rows were reordered by it holds the head's column `pair_order(head_dim)[i]`.
    """
    half = head_dim // 2
    first = np.arange(half).reshape(-1, 8)
    return np.concatenate([first, first + half], axis=1).ravel()


@njit(nogil=True, cache=True, error_model="numpy")
def rotate(pairs: int, cos: int, sin: int, block: int) -> None:
    """Turn the eight pairs at `pairs` (firsts, then seconds) by angles `8 block ...`; `cos` and `sin` of one position."""
    rotate_pairs(pairs, cos + 32 * block, sin + 32 * block)


@njit(nogil=True, cache=True, error_model="numpy")
def scatter_pairs(pairs: int, out: int, stride: int, depth: int, block: int, item: int = 4) -> None:
    """Put eight pairs to the columns they came from: `out`, columns `stride` bytes apart, of a head of `depth`.

    `item`: bytes of a stored number: 4 float32, 2 float16, 1 int8 (they are whole numbers then).
    """
    for i in range(8):
        first, second = out + (8 * block + i) * stride, out + (depth // 2 + 8 * block + i) * stride
        if item == 1:
            store_signed(first, load_float(pairs + 4 * i))
            store_signed(second, load_float(pairs + 32 + 4 * i))
        elif item == 2:
            store_half(first, load_float(pairs + 4 * i))
            store_half(second, load_float(pairs + 32 + 4 * i))
        else:
            store_float(first, load_float(pairs + 4 * i))
            store_float(second, load_float(pairs + 32 + 4 * i))
