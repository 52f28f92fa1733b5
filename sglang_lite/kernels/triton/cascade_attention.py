"""Attention of single tokens whose rows begin with the same pages, which are read once for several rows, on a GPU.

The kernels are those of `decode_attention.py`; what is shared is which work items they are given. Pieces lie where
they would lie for a row alone and are combined in the same order, so sharing changes no bit.
Oracle: `kernels/reference/cascade_attention.py`.
"""

from __future__ import annotations

import torch

from sglang_lite.kernels.triton.decode_attention import split_attention
from sglang_lite.kernels.triton.split_plan import plan_split
from sglang_lite.kernels.triton.split_work import SplitWork


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
    rows, heads, head_dim = q.shape
    index = torch.arange(rows, dtype=torch.int32).numpy()
    group = heads // k_pages.shape[1]
    plan = plan_split(index, index, seq_lens.cpu().numpy(), page_table.cpu().numpy(), k_pages.shape[2], group)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    work = SplitWork.of(plan, heads, head_dim, q.device)
    split_attention(q, k_pages, v_pages, page_table, work, out, scale, window, soft_cap)
    return out
