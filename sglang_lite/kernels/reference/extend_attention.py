"""Attention of rows of new tokens over paged keys that lie token by token: plain torch, the oracle."""

from __future__ import annotations

import torch

from sglang_lite.kernels.reference.paged_attention import paged_attention


def extend_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    q_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    mask: torch.Tensor | None = None,
    mask_starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `paged_attention`, with masks for drafts that branch.

    Args:
        q: [T, query heads, head_dim].
        k_pages: [pages, kv_heads, page_size, head_dim].
        v_pages: [pages, kv_heads, page_size, head_dim].
        page_table: int [R, max_pages].
        q_starts: int [R + 1].
        seq_lens: int [R], new tokens included.
        scale: as there, and so are the next two.
        window: likewise.
        soft_cap: likewise.
        mask: bool, matrices one after another: whether a row's new token (rows of the matrix) sees another (columns).
            It only hides; every token sees itself. None: none is hidden.
        mask_starts: int [R], where each row's matrix begins in `mask`, -1: it has none.

    Returns:
        [T, query heads, head_dim].

    """
    matrices: list[torch.Tensor | None] | None = None
    if mask is not None and mask_starts is not None:
        matrices = []
        for start, n in zip(mask_starts.tolist(), q_starts.diff().tolist(), strict=True):
            matrices.append(None if start < 0 else mask[start : start + n * n].view(n, n))
    keys = k_pages.transpose(-1, -2)
    return paged_attention(q, keys, v_pages, page_table, q_starts, seq_lens, scale, window, soft_cap, matrices)
