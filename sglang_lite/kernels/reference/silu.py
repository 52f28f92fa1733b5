"""The gate of the MLP: plain numpy in float64, the oracle."""

from __future__ import annotations

import numpy as np


def silu_mul(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """`gate / (1 + exp(-gate)) * up`, float64."""
    wide = gate.astype(np.float64)
    return wide / (1 + np.exp(-wide)) * up
