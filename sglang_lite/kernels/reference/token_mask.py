"""Token bitmasks on logits in plain numpy: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def apply_token_mask(logits: NDArray[np.float32], bitmask: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    """Set the logits of tokens that may not come to minus infinity, in place.

    Args:
        logits: float32 [B, V], written. Tokens that the bitmask has no bit for may not come.
        bitmask: int32 [B, words]; bit `i % 32` of word `i // 32` is 1 where token i may come.
        rows: the rows to mask; all others stay as they are.

    """
    vocab = logits.shape[1]
    for row in rows:
        bits = np.unpackbits(np.ascontiguousarray(bitmask[row]).view(np.uint8), bitorder="little")[:vocab]
        legal = np.zeros(vocab, dtype=bool)
        legal[: len(bits)] = bits
        logits[row, ~legal] = -np.inf
