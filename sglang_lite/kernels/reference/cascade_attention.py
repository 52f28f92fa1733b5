"""Attention of one new token a row in two parts, a shared prefix and the rest, whose results are merged: plain torch, the oracle."""

from __future__ import annotations

import torch


def cascade_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    num_shared: int,
    scale: float,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """What attention gives when all rows read their first keys from the pages of the first row.

    Args:
        q: [R, query heads, head_dim].
        k_pages: [pages, kv_heads, page_size, head_dim].
        v_pages: [pages, kv_heads, page_size, head_dim].
        page_table: int [R, max_pages]; the first `num_shared` of all rows are equal.
        seq_lens: int [R], new tokens included; above `num_shared * page_size`.
        num_shared: pages that all rows begin with.
        scale: factor on the scores.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)`; None: they stay.

    Returns:
        [R, query heads, head_dim].

    """
    out = torch.empty_like(q)
    shared = _tokens(k_pages, v_pages, page_table[0, :num_shared])
    for row, seq_len in enumerate(seq_lens.tolist()):
        k, v = _tokens(k_pages, v_pages, page_table[row, num_shared:])
        own = seq_len - num_shared * k_pages.shape[2]
        parts = [_partial(q[row], *shared, scale, soft_cap), _partial(q[row], k[:, :own], v[:, :own], scale, soft_cap)]
        totals = torch.stack([total for _, total in parts])
        weights = totals.softmax(dim=0)
        out[row] = sum(weights[i, :, None] * values for i, (values, _) in enumerate(parts))
    return out


def _tokens(k_pages: torch.Tensor, v_pages: torch.Tensor, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of pages, [kv_heads, tokens, head_dim]."""
    k, v = (x[pages.long()].transpose(0, 1).flatten(1, 2) for x in (k_pages, v_pages))
    return k, v


def _partial(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, soft_cap: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one token over some keys, with the logarithm of its sum of weights: [heads, head_dim], [heads]."""
    group = len(q) // len(k)
    k, v = (x.to(q.dtype).repeat_interleave(group, dim=0) for x in (k, v))
    scores = torch.einsum("hd,htd->ht", q, k) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    return torch.einsum("ht,htd->hd", scores.softmax(dim=-1), v), scores.logsumexp(dim=-1)
