"""Attention of single tokens whose rows begin with the same pages, which are read once for several rows, on a GPU.

The kernels are those of `decode_attention.py`; what is shared is which work items they are given. Pieces lie where
they would lie for a row alone and are combined in the same order, so sharing changes no bit.
Oracle: `kernels/reference/cascade_attention.py`.
"""

from __future__ import annotations

import torch

from sglang_lite.kernels.triton.decode_attention import attend_tokens


def cascade_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """As `decode_attention`, to the bit, with shared pages read once; finds them in the page table, on the host.

    Args:
        q: [R, query heads, head_dim].
        k_pages: as in `decode_attention`, and so are the others.
        v_pages: likewise.
        page_table: likewise; equal first pages are what rows share.
        seq_lens: likewise.
        scale: likewise.
        window: likewise.
        soft_cap: likewise.

    Returns:
        [R, query heads, head_dim], of the type of `q`.

    """
    return attend_tokens(q, k_pages, v_pages, page_table, seq_lens, scale, window, soft_cap, share=True)
