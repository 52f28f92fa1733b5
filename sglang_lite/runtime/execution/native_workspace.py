"""Memory of the native step's rows in progress, kept between steps and grown when a step has more tokens."""

from __future__ import annotations

import numpy as np

from sglang_lite.kernels.cpu import llama_step as step
from sglang_lite.runtime.model.config import ModelConfig

_ALIGN = 64


class Workspace:
    """Arrays for every token of a step; what they hold means nothing between steps."""

    def __init__(self, config: ModelConfig) -> None:
        width, hidden, inner = config.num_heads * config.head_dim, config.hidden_size, config.intermediate_size
        self._bytes_per_token = {
            step.NORMED: 4 * hidden,
            step.A: hidden,
            step.A_SCALES: hidden // 4,
            step.A_SUMS: hidden // 8,
            step.Q: 4 * width,
            step.ATTENDED: 4 * width,
            step.B: width,
            step.B_SCALES: width // 4,
            step.B_SUMS: width // 8,
            step.GATED: 4 * inner,
            step.C: inner,
            step.C_SCALES: inner // 4,
            step.C_SUMS: inner // 8,
            step.REST: hidden,
            step.REST_SCALES: hidden // 4,
            step.REST_SUMS: hidden // 8,
        }
        self._capacity = 0
        self._memory = np.empty(0, dtype=np.uint8)

    def enter(self, block: np.ndarray, tokens: int) -> None:
        """Make room for `tokens` tokens and write the arrays' addresses into the step's `block`."""
        if tokens > self._capacity:
            self._capacity = -(-tokens // _ALIGN) * _ALIGN
            self._memory = np.empty(self._capacity * sum(self._bytes_per_token.values()) + _ALIGN, dtype=np.uint8)
            at = -(-self._memory.ctypes.data // _ALIGN) * _ALIGN
            for field, n_bytes in self._bytes_per_token.items():
                block[field] = at
                at += self._capacity * n_bytes
