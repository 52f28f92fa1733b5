"""RMS norm: plain numpy in float64, the oracle."""

from __future__ import annotations

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis, float64 [..., H]."""
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + eps) * weight
