"""Keys and values as int8 with a float32 scale for each token and head: plain torch, the oracle."""

from __future__ import annotations

import torch


def round_heads(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [T, heads, head_dim] -> int8 of the same shape, and what one is worth, float32 [T, heads].

    The largest number of a head becomes 127 or -127; rounds to nearest, ties to even. Where a head holds a NaN or an
    infinity its scale is NaN.
    """
    top = x.abs().amax(-1, keepdim=True)
    inverse = torch.where((top > 0) & top.isfinite(), 127.0 / top, torch.zeros_like(top))
    whole = torch.round((x * inverse).nan_to_num())
    worth = torch.where(
        top.isfinite(), top * torch.tensor(1 / 127, dtype=torch.float32), torch.full_like(top, float("nan"))
    )
    return whole.to(torch.int8), worth[..., 0]
