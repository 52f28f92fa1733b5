"""Products with weights stored as Q8_0: eight bits a weight, `w = d q` for 32 in a row, d float16."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.packing import pack_bytes
from sglang_lite.kernels.cpu.simd_int8 import make_byte_tile

BLOCK_BYTES = 272

_tile4, _tile2, _tile1 = (make_byte_tile(rows, halves=False) for rows in (4, 2, 1))


def pack_q8_0(raw: np.ndarray) -> np.ndarray:
    """Rearrange the file's blocks; the values stay as they are.

    Args:
        raw: uint8 [N, K / 32 * 34], as GGUF stores Q8_0.

    Returns:
        uint8 [N / 8 (made even), K / 32, 272]; outputs that fill up the last block are zeros.

    """
    blocks = raw.reshape(len(raw), -1, 34)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)
    return pack_bytes(blocks[..., 2:], scales)


@njit(nogil=True, cache=True, error_model="numpy")
def linear_q8_0(
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
