"""Token bitmasks on logits, on the CPU: Numba. Knows no grammar. Oracle: `kernels/reference/token_mask.py`.

A bitmask is int32 `[B, ceil(V / 32)]`; bit `i % 32` of word `i // 32` is 1 where token i may come. Both functions are compiled
for these types when this module is imported, release the GIL and touch nothing but their arguments: threads may mask
different rows of one batch at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit("void(float32[:, ::1], int32[:, ::1], int64[::1])", nogil=True, cache=True, error_model="numpy")
def apply_token_mask(logits: np.ndarray, bitmask: np.ndarray, rows: np.ndarray) -> None:
    """Set the logits of tokens that may not come to minus infinity, in place. Nothing is checked.

    Args:
        logits: float32 [B, V], contiguous, written. Tokens that the bitmask has no bit for may not come.
        bitmask: int32 [B, words], contiguous; row b is for row b of `logits`.
        rows: int64 [n], the rows to mask; all others stay as they are, and their bitmask is not read.

    """
    vocab, words = logits.shape[1], bitmask.shape[1]
    for i in range(rows.shape[0]):
        row = rows[i]
        for word in range((vocab + 31) // 32):
            bits = bitmask[row, word] if word < words else np.int32(0)
            if bits == -1:
                continue
            first = 32 * word
            for bit in range(min(32, vocab - first)):
                if not (bits >> bit) & 1:
                    logits[row, first + bit] = -np.inf


@njit("int64(int32[::1], int64, int64[::1])", nogil=True, cache=True, error_model="numpy")
def list_legal_ids(words: np.ndarray, vocab: int, ids: np.ndarray) -> int:
    """Write the tokens of a bitmask's row that may come, ascending, as many as `ids` has room for; returns how many there are.

    Args:
        words: int32 [words], contiguous.
        vocab: bits from here on do not count.
        ids: int64 [n], contiguous, written.

    """
    count = 0
    for word in range(min(words.shape[0], (vocab + 31) // 32)):
        bits = words[word]
        if bits == 0:
            continue
        first = 32 * word
        for bit in range(min(32, vocab - first)):
            if (bits >> bit) & 1:
                if count < ids.shape[0]:
                    ids[count] = first + bit
                count += 1
    return count
