"""Products with weights stored as Q4_1 or Q4_0: four bits a weight, `w = d q + m` for 32 in a row, d and m float16."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.packing import pack_nibbles, split_nibbles
from sglang_lite.kernels.cpu.simd_int8 import make_nibble_tile

BLOCK_BYTES = 160

_tile4, _tile2, _tile1 = (make_nibble_tile(rows, half=True) for rows in (4, 2, 1))


def pack_q4_1(raw: np.ndarray) -> np.ndarray:
    """Rearrange the file's blocks; the values stay as they are.

    Args:
        raw: uint8 [N, K / 32 * 20], as GGUF stores Q4_1.

    Returns:
        uint8 [N / 8 (made even), K / 32, 160]; outputs that fill up the last block are zeros.

    """
    blocks = raw.reshape(len(raw), -1, 20)
    return pack_nibbles(split_nibbles(blocks[..., 4:]), _half(blocks[..., :2]), _half(blocks[..., 2:4]))


def pack_q4_0(raw: np.ndarray) -> np.ndarray:
    """As `pack_q4_1` for Q4_0, uint8 [N, K / 32 * 18], whose `w = d (q - 8)` is `d q + m` with `m = -8 d`, exact in float16."""
    blocks = raw.reshape(len(raw), -1, 18)
    scales = _half(blocks[..., :2])
    return pack_nibbles(split_nibbles(blocks[..., 2:]), scales, scales * np.float16(-8))


def _half(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view(np.float16)[..., 0]


@njit(nogil=True, cache=True, error_model="numpy")
def linear_q4_1(
    w: int, x: int, a: int, scales: int, sums: int, y: int, y_stride: int, rows: int, groups: int, first: int,
    last: int, accumulate: int,
) -> None:  # fmt: skip
    """`y (+)= activations @ w.T` for the columns `16 first` to `16 last - 1`; addresses, nothing is checked.

    Args:
        w: packed weights.
        x: not read.
        a: int8 [rows, 32 groups].
        scales: float32 [rows, groups, 2], of each half of a group.
        sums: float32 [rows, groups], the sum of the group's int8, each times its scale.
        y: float32, at row 0 of column `16 first`.
        y_stride: distance of two rows of y in bytes.
        rows: number of rows.
        groups: K / 32.
        first: first block of 16 columns.
        last: block after the last.
        accumulate: 0: write y, 1: add to it.

    """
    a_stride, s_stride = 32 * groups, 8 * groups
    for n in range(2 * (last - first)):
        block, out = w + (2 * first + n) * groups * BLOCK_BYTES, y + 32 * n
        r = 0
        while r + 4 <= rows:
            _tile4(
                block, a + r * a_stride, scales + r * s_stride, sums + r * s_stride // 2, out + r * y_stride,
                groups, a_stride, s_stride, y_stride, accumulate,
            )  # fmt: skip
            r += 4
        if r + 2 <= rows:
            _tile2(
                block, a + r * a_stride, scales + r * s_stride, sums + r * s_stride // 2, out + r * y_stride,
                groups, a_stride, s_stride, y_stride, accumulate,
            )  # fmt: skip
            r += 2
        if r < rows:
            _tile1(
                block, a + r * a_stride, scales + r * s_stride, sums + r * s_stride // 2, out + r * y_stride,
                groups, a_stride, s_stride, y_stride, accumulate,
            )  # fmt: skip
