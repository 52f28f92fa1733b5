"""Attention of one new token a row over paged keys that lie token by token: plain torch, the oracle."""

from __future__ import annotations

import torch

from sglang_lite.kernels.reference.paged_attention import paged_attention


def decode_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """As `paged_attention`, where every row has one new token.

    Args:
        q: [R, query heads, head_dim].
        k_pages: [pages, kv_heads, page_size, head_dim].
        v_pages: [pages, kv_heads, page_size, head_dim].
        page_table: int [R, max_pages].
        seq_lens: int [R], new tokens included.
        scale: as there, and so are the others.
        window: likewise.
        soft_cap: likewise.

    Returns:
        [R, query heads, head_dim].

    """
    starts = torch.arange(len(q) + 1)
    return paged_attention(q, k_pages.transpose(-1, -2), v_pages, page_table, starts, seq_lens, scale, window, soft_cap)
