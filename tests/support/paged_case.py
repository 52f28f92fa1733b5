"""Random paged keys and values for kernel tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool


@dataclass
class PagedCase:
    """A batch with its pool (one layer, filled with noise everywhere) and the step's q, k, v."""

    pool: KvPool
    fb: ForwardBatch
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def paged_case(
    prefix: list[int],
    extend: list[int],
    page_size: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    seed: int = 0,
    *,
    token_major: bool = False,
    dtype: torch.dtype = torch.float32,
) -> PagedCase:
    """Rows with the given lengths on shuffled pages; free pages and page tails hold NaN in keys and values."""
    generator = torch.Generator().manual_seed(seed)
    rows, tokens = len(prefix), sum(extend)
    needed = [-(-(p + e) // page_size) for p, e in zip(prefix, extend, strict=True)]
    pool = KvPool(1, sum(needed) + 3, kv_heads, head_dim, page_size, dtype=dtype, token_major=token_major)
    pool.k.fill_(float("nan"))
    pool.v.fill_(float("nan"))
    order = 1 + torch.randperm(sum(needed) + 2, generator=generator).numpy()
    table = np.zeros((rows, max(needed, default=1)), dtype=np.int32)
    taken = 0
    for row, count in enumerate(needed):
        table[row, :count] = order[taken : taken + count]
        taken += count
        for token in range(prefix[row]):
            page, offset = int(table[row, token // page_size]), token % page_size
            pool.transposed_keys(0)[page, :, :, offset] = torch.randn(kv_heads, head_dim, generator=generator)
            pool.v[0, page, :, offset] = torch.randn(kv_heads, head_dim, generator=generator)
    fb = ForwardBatch.build(
        np.arange(tokens), np.array(extend, dtype=int), np.array(prefix, dtype=int), table, page_size
    )
    q, k, v = (torch.randn(tokens, h, head_dim, generator=generator) for h in (heads, kv_heads, kv_heads))
    return PagedCase(pool, fb, q, k, v)
