"""Write new keys and values into their pages: plain torch, the oracle."""

from __future__ import annotations

import torch


def store_kv(
    k: torch.Tensor, v: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, slots: torch.Tensor
) -> None:
    """Put token t's key and value into slot `slots[t]` (`page * page_size + offset`).

    Args:
        k: [T, kv_heads, head_dim].
        v: [T, kv_heads, head_dim].
        k_pages: [pages, kv_heads, head_dim, page_size], written; the numbers are rounded to its type.
        v_pages: [pages, kv_heads, page_size, head_dim], written.
        slots: int64 [T]; unique, except that any number may lie in page 0.

    """
    page_size = v_pages.shape[2]
    pages, offsets = slots // page_size, slots % page_size
    k_pages[pages, :, :, offsets] = k.to(k_pages.dtype)
    v_pages[pages, :, offsets] = v.to(v_pages.dtype)
