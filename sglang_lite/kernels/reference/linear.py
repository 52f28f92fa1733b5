"""Products of int8 activations with a matrix: plain numpy in float64, the oracle of all quantised linears."""

from __future__ import annotations

import numpy as np

GROUP = 32
"""Activations that share a scale."""


def quantize_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Round rows to int8 in groups of 32, to nearest, ties to even.

    Args:
        x: float32 [T, K], K a multiple of 32.

    Returns:
        int8 [T, K]; scales `max |x| / 127`, float32 [T, K / 32]; and these times the sum of the group's int8.

    """
    groups = x.reshape(len(x), -1, GROUP)
    top = np.abs(groups).max(axis=-1)
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    values = np.rint(groups * inverse[..., None]).astype(np.int8)
    scales = top * np.float32(1 / 127)
    return values.reshape(x.shape), scales, scales * values.sum(axis=-1, dtype=np.int32).astype(np.float32)


def linear(values: np.ndarray, scales: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """`(values * scales) @ weight.T`.

    Args:
        values: int8 [T, K].
        scales: [T, K / 32].
        weight: [N, K], dequantised.

    Returns:
        float64 [T, N].

    """
    rows = values.reshape(len(values), -1, GROUP) * scales[..., None].astype(np.float64)
    return rows.reshape(values.shape) @ weight.astype(np.float64).T
