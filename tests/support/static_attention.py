"""Attention on the CPU whose operations depend on sizes only, so that it can be captured; and projections to match.

Each token's numbers are sums over contiguous memory, so they are equal to the bit whatever else is in the batch.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from sglang_lite.kernels.reference.store_kv import store_kv
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.model.linear import Fp32Linear


class StaticAttention:
    """`GraphAttention` over `pool`; reads all `width` pages of every row and hides what the token does not see."""

    captures_extends = True

    def __init__(self, pool: KvPool, width: int) -> None:
        self._pool = pool
        self._width = width
        self._batch: ForwardBatch | None = None
        self.captured: list[int] = []
        self.replayed: list[tuple[int, list[int]]] = []

    def plan(self, fb: ForwardBatch) -> None:
        self._batch = fb

    def plan_capture(self, fb: ForwardBatch) -> None:
        self.captured.append(fb.num_rows)
        self._batch = fb

    def plan_replay(self, fb: ForwardBatch) -> None:
        self.replayed.append((fb.num_rows, fb.host.seq_lens.tolist()))
        self._batch = fb

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        fb, pool = self._batch, self._pool
        assert fb is not None
        assert options == PLAIN
        store_kv(k, v, pool.transposed_keys(layer), pool.v[layer], fb.out_slots)
        table = functional.pad(fb.page_table, (0, self._width - fb.page_table.shape[1])).long()
        token = torch.arange(len(q))
        row = torch.searchsorted(fb.q_starts, token, right=True) - 1
        group = q.shape[1] // pool.num_kv_heads
        keys = (
            pool.transposed_keys(layer)[table].permute(0, 2, 1, 4, 3).flatten(2, 3)
        )  # [rows, kv_heads, seq, head_dim]
        values = pool.v[layer][table].permute(0, 2, 4, 1, 3).flatten(3, 4)  # [rows, kv_heads, head_dim, seq]
        keys, values = keys.repeat_interleave(group, dim=1)[row], values.repeat_interleave(group, dim=1)[row]
        scores = (q[:, :, None] * keys).sum(-1) * pool.head_dim**-0.5
        hidden = (torch.arange(scores.shape[-1]) > fb.positions[:, None])[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return (weights[:, :, None] * values.masked_fill(hidden[:, :, None], 0.0)).sum(-1)


class RowLinear(Fp32Linear):
    """A projection whose every number is a sum of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, None] * self.weight).sum(-1)
