"""Products with weights stored as Q6_K: six bits a weight, `w = d q` for 16 in a row, d a product of two numbers."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.packing import pack_bytes
from sglang_lite.kernels.cpu.simd_int8 import make_byte_tile

BLOCK_BYTES = 320

_tile4, _tile2, _tile1 = (make_byte_tile(rows, halves=True) for rows in (4, 2, 1))


def pack_q6_k(raw: np.ndarray) -> np.ndarray:
    """Give each weight a byte and multiply out the scales, which is exact in float32.

    Args:
        raw: uint8 [N, K / 256 * 210], as GGUF stores Q6_K: 256 low nibbles, 256 high pairs of bits, 16 int8 scales, a float16.

    Returns:
        uint8 [N / 8 (made even), K / 32, 320]; outputs that fill up the last block are zeros.

    """
    blocks = raw.reshape(len(raw), -1, 210)
    shape = blocks.shape[:2]
    low = blocks[..., :128].reshape(*shape, 2, 1, 64) >> np.array([0, 4], dtype=np.uint8).reshape(2, 1) & 15
    high = blocks[..., 128:192].reshape(*shape, 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8).reshape(4, 1) & 3
    q = (low.reshape(*shape, 2, 4, 32) | high << 4).view(np.int8) - np.int8(32)
    d = np.ascontiguousarray(blocks[..., 208:]).view(np.float16).astype(np.float32)
    scales = d * np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    groups = 8 * shape[1]
    return pack_bytes(q.view(np.uint8).reshape(len(raw), groups, 32), scales.reshape(len(raw), groups, 2))


@njit(nogil=True, cache=True, error_model="numpy")
def linear_q6_k(
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
