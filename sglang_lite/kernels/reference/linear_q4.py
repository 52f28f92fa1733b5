"""The numbers of 4-bit matrices as GGUF stores them, in plain numpy: the oracle of their products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP = 32
"""Weights in a row that share a scale: `d q + m` (Q4_1) or `d (q - 8)` (Q4_0)."""

FLOATS_PER_GROUP = {"Q4_0": 1, "Q4_1": 2}


def dequantize(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """float32 [N, K] of uint8 [N, K / 32 * bytes of a group]: d and (Q4_1) m as float16, then 16 bytes.

    Byte j has weight j in its low half and weight j + 16 in its high half.
    """
    head = 2 * FLOATS_PER_GROUP[kind]
    groups = raw.reshape(len(raw), -1, head + GROUP // 2)
    floats = np.ascontiguousarray(groups[..., :head]).view(np.float16).astype(np.float32)
    quants = np.concatenate([groups[..., head:] & 15, groups[..., head:] >> 4], axis=-1).astype(np.float32)
    weights = floats[..., :1] * quants + floats[..., 1:] if kind == "Q4_1" else floats[..., :1] * (quants - 8)
    return weights.reshape(len(raw), -1)
