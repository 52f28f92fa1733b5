"""Rotary positions: plain numpy in float64, the oracle."""

from __future__ import annotations

import numpy as np


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turn the pairs (i, i + D / 2) of each head.

    Args:
        x: [T, heads, D].
        cos: [T, D / 2].
        sin: [T, D / 2].

    Returns:
        float64 [T, heads, D].

    """
    first, second = np.split(x.astype(np.float64), 2, axis=-1)
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([first * c - second * s, second * c + first * s], axis=-1)
