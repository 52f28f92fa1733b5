"""RMS norm and rounding to int8 of rows."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu.simd_int8 import load_float, load_signed, quantize_group, store_float
from sglang_lite.kernels.cpu.simd_rows import scale_rows, sum_of_squares


@njit(nogil=True, cache=True, error_model="numpy")
def quantize_row(x: int, groups: int, a: int, scales: int, sums: int) -> None:
    """float32 [32 groups] at x -> int8 at a, two scales and a scaled sum for each group of 32; addresses."""
    for g in range(groups):
        quantize_group(x + 128 * g, a + 32 * g, scales + 8 * g, sums + 4 * g)


@njit(nogil=True, cache=True, error_model="numpy")
def subtract_rounded(x: int, groups: int, a: int, scales: int) -> None:
    """Leave in x what `quantize_row` lost: each float less its int8 times its scale; addresses."""
    for i in range(32 * groups):
        at = x + 4 * i
        store_float(at, load_float(at) - load_float(scales + 4 * (i // 16)) * load_signed(a + i))


@njit(nogil=True, cache=True, error_model="numpy")
def rms_norm(x: int, weight: int, eps: np.float32, groups: int, out: int) -> None:
    """`out = x / sqrt(mean(x^2) + eps) * weight` for one row of `32 groups` floats; addresses."""
    mean = sum_of_squares(x, 2 * groups) / np.float32(32 * groups)
    scale_rows(x, np.float32(1.0) / np.sqrt(mean + eps), weight, out, 2 * groups)


@njit(nogil=True, cache=True, error_model="numpy")
def rms_norm_lanes(x: int, weight: int, eps: np.float32, groups: int) -> None:
    """As `rms_norm` for `16 groups` floats, in place: one head."""
    mean = sum_of_squares(x, groups) / np.float32(16 * groups)
    scale_rows(x, np.float32(1.0) / np.sqrt(mean + eps), weight, x, groups)
