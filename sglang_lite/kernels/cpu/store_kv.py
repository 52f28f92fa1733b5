"""Write new keys and values into their pages on the CPU: Numba. Oracle: `kernels/reference/store_kv.py`."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def store_kv(k: np.ndarray, v: np.ndarray, k_pages: np.ndarray, v_pages: np.ndarray, slots: np.ndarray) -> None:
    """Put token t's key and value into slot `slots[t]` (`page * page_size + offset`). Nothing is checked.

    Args:
        k: float32 [T, kv_heads, head_dim], contiguous.
        v: float32 [T, kv_heads, head_dim], contiguous.
        k_pages: float32 [pages, kv_heads, head_dim, page_size], contiguous, written.
        v_pages: float32 [pages, kv_heads, page_size, head_dim], contiguous, written.
        slots: int64 [T].

    """
    heads, page_size, depth = v_pages.shape[1], v_pages.shape[2], v_pages.shape[3]
    for t in range(slots.shape[0]):
        page, offset = slots[t] // page_size, slots[t] % page_size
        for h in range(heads):
            for d in range(depth):
                k_pages[page, h, d, offset] = k[t, h, d]
                v_pages[page, h, offset, d] = v[t, h, d]
