"""Causal attention over paged keys and values: plain torch, the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    q_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    masks: Sequence[torch.Tensor | None] | None = None,
) -> torch.Tensor:
    """Row r's token i (of n) attends to the first `seq_lens[r] - n + i + 1` tokens of its sequence.

    Query head h reads kv head `h // (query heads / kv_heads)`.

    Args:
        q: [T, query heads, head_dim].
        k_pages: [pages, kv_heads, head_dim, page_size].
        v_pages: [pages, kv_heads, page_size, head_dim].
        page_table: int [R, max_pages].
        q_starts: int [R + 1].
        seq_lens: int [R], new tokens included.
        scale: factor on the scores.
        window: tokens that a token sees, itself included; None: all up to itself.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)` before the softmax; None: they stay.
        masks: for each row bool [n, n], False hides a new token (column) from another (row); None: nothing is hidden.

    Returns:
        [T, query heads, head_dim].

    """
    out = torch.empty_like(q)
    group = q.shape[1] // k_pages.shape[1]
    page_size = v_pages.shape[2]
    for row, seq_len in enumerate(seq_lens.tolist()):
        lo, hi = int(q_starts[row]), int(q_starts[row + 1])
        pages = page_table[row, : -(-seq_len // page_size)].long()
        keys = k_pages[pages].permute(1, 0, 3, 2).flatten(1, 2)[:, :seq_len]  # [kv_heads, seq, head_dim]
        values = v_pages[pages].transpose(0, 1).flatten(1, 2)[:, :seq_len]
        keys, values = keys.to(q.dtype), values.to(q.dtype)
        keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
        scores = q[lo:hi].transpose(0, 1) @ keys.transpose(1, 2) * scale  # [query heads, n, seq]
        limit = torch.arange(seq_len - (hi - lo), seq_len, device=q.device)
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        key = torch.arange(seq_len, device=q.device)
        hidden = key > limit[:, None]
        if window is not None:
            hidden |= key <= limit[:, None] - window
        if masks is not None and (mask := masks[row]) is not None:
            hidden[:, seq_len - (hi - lo) :] |= ~mask
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[lo:hi] = (weights @ values).transpose(0, 1)
    return out
