"""Products with weights kept as float32 (files that store F32, F16 or BF16); activations are not rounded."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.simd import LANES, make_value_tile
from sglang_lite.kernels.cpu.simd_int8 import store_float

_tile6, _tile3, _tile1 = (make_value_tile(rows) for rows in (6, 3, 1))


def pack_f32(weight: np.ndarray) -> np.ndarray:
    """float32 [N, K] -> float32 [N / 16 (rounded up), K, 16], filled up with zeros."""
    missing = -len(weight) % LANES
    filled = np.concatenate([weight, np.zeros((missing, weight.shape[1]), dtype=np.float32)]) if missing else weight
    return np.ascontiguousarray(filled.reshape(-1, LANES, weight.shape[1]).transpose(0, 2, 1))


@njit(nogil=True, cache=True, error_model="numpy")
def linear_f32(
    w: int, x: int, a: int, scales: int, sums: int, y: int, y_stride: int, rows: int, groups: int, first: int,
    last: int, accumulate: int,
) -> None:  # fmt: skip
    """`y (+)= x @ w.T` for the columns `16 first` to `16 last - 1`; addresses, nothing is checked.

    Args:
        w: packed weights.
        x: float32 [rows, 32 groups].
        a: not read, as scales and sums.
        scales: as a.
        sums: as a.
        y: float32, at row 0 of column `16 first`.
        y_stride: distance of two rows of y in bytes.
        rows: number of rows.
        groups: K / 32.
        first: first block of 16 columns.
        last: block after the last.
        accumulate: 0: write y, 1: add to it.

    """
    depth = 32 * groups
    for n in range(last - first):
        block, out = w + (first + n) * depth * 4 * LANES, y + 4 * LANES * n
        if accumulate == 0:
            for r in range(rows):
                for lane in range(LANES):
                    store_float(out + r * y_stride + 4 * lane, np.float32(0.0))
        r = 0
        while r + 6 <= rows:
            _tile6(x + r * depth * 4, depth, block, LANES, depth, out + r * y_stride, y_stride // 4)
            r += 6
        while r + 3 <= rows:
            _tile3(x + r * depth * 4, depth, block, LANES, depth, out + r * y_stride, y_stride // 4)
            r += 3
        while r < rows:
            _tile1(x + r * depth * 4, depth, block, LANES, depth, out + r * y_stride, y_stride // 4)
            r += 1
