"""Products of int8 activations with a matrix: plain numpy in float64, the oracle of all quantised linears."""

from __future__ import annotations

import numpy as np

GROUP = 32
"""Inputs of a weight block."""

HALF = 16
"""Activations that share a scale."""


def quantize_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Round rows to int8, to nearest, ties to even.

    Args:
        x: float32 [T, K], K a multiple of 32.

    Returns:
        int8 [T, K]; a scale `max |x| / 127` for every 16, float32 [T, K / 16]; and for every 32 the sum of the int8s,
        each times its scale, float32 [T, K / 32].

    """
    halves = x.reshape(len(x), -1, HALF)
    top = np.abs(halves).max(axis=-1)
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    values = np.rint(halves * inverse[..., None]).astype(np.int8)
    scales = top * np.float32(1 / 127)
    sums = scales * values.sum(axis=-1, dtype=np.int32).astype(np.float32)
    return values.reshape(x.shape), scales, sums[:, ::2] + sums[:, 1::2]


def linear(values: np.ndarray, scales: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """`(values * scales) @ weight.T`.

    Args:
        values: int8 [T, K].
        scales: [T, K / 16].
        weight: [N, K], dequantised.

    Returns:
        float64 [T, N].

    """
    rows = values.reshape(len(values), -1, HALF) * scales[..., None].astype(np.float64)
    return rows.reshape(values.shape) @ weight.astype(np.float64).T
