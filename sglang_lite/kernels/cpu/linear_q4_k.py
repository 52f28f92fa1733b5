"""Products with weights stored as Q4_K: four bits a weight, `w = d q + m` for 32 in a row, d and m products of two numbers."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.packing import pack_nibbles, split_nibbles
from sglang_lite.kernels.cpu.simd_int8 import make_nibble_tile

BLOCK_BYTES = 192

_tile4, _tile2, _tile1 = (make_nibble_tile(rows, half=False) for rows in (4, 2, 1))


def pack_q4_k(raw: np.ndarray) -> np.ndarray:
    """Rearrange the file's blocks and multiply out their scales, which is exact in float32.

    Args:
        raw: uint8 [N, K / 256 * 144], as GGUF stores Q4_K: two float16, eight 6-bit scales and minima, 256 q.

    Returns:
        uint8 [N / 8 (made even), K / 32, 192]; outputs that fill up the last block are zeros.

    """
    blocks = raw.reshape(len(raw), -1, 144)
    factors = np.ascontiguousarray(blocks[..., :4]).view(np.float16).astype(np.float32)
    bits = blocks[..., 4:16]
    low, high, mixed = bits[..., :4], bits[..., 4:8], bits[..., 8:]
    scales = np.concatenate([low & 63, (mixed & 15) | (low >> 6 << 4)], axis=-1)
    minima = np.concatenate([high & 63, (mixed >> 4) | (high >> 6 << 4)], axis=-1)
    d = factors[..., :1] * scales
    m = -(factors[..., 1:] * minima)
    q = split_nibbles(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32))
    groups = 8 * blocks.shape[1]
    return pack_nibbles(q.reshape(len(raw), groups, 32), d.reshape(len(raw), groups), m.reshape(len(raw), groups))


@njit(nogil=True, cache=True, error_model="numpy")
def linear_q4_k(
    w: int, x: int, a: int, scales: int, sums: int, y: int, y_stride: int, rows: int, groups: int, first: int,
    last: int, accumulate: int,
) -> None:  # fmt: skip
    """As `linear_q4_1`, for weights packed by this file."""
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
