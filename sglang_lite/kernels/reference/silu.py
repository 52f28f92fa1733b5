"""The gate of the MLP: plain numpy in float64, the oracle."""

from __future__ import annotations

import numpy as np


def silu_mul(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """`gate / (1 + exp(-gate)) * up`, float64."""
    wide = gate.astype(np.float64)
    return wide / (1 + np.exp(-wide)) * up


def gelu_tanh_mul(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """`gate / 2 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate^3))) * up`, float64."""
    wide = gate.astype(np.float64)
    return wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) * up
