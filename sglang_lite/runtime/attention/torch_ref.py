"""The attention backend in plain torch: any device, no compiler, the oracle of the others."""

from __future__ import annotations

import torch

from sglang_lite.kernels.reference.paged_attention import paged_attention
from sglang_lite.kernels.reference.store_kv import store_kv
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool


class TorchAttention:
    """`AttentionBackend` over `pool`, row by row."""

    def __init__(self, pool: KvPool) -> None:
        self._pool = pool
        self._batch: ForwardBatch | None = None

    def plan(self, fb: ForwardBatch) -> None:
        """See `AttentionBackend.plan`."""
        assert fb.page_size == self._pool.page_size, (
            f"batch pages of {fb.page_size}, pool pages of {self._pool.page_size}"
        )
        self._batch = fb

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`."""
        fb = self._batch
        assert fb is not None, "forward needs a plan: call plan(forward_batch) first"
        k_pages, v_pages = self._pool.k[layer], self._pool.v[layer]
        store_kv(k, v, k_pages, v_pages, fb.out_slots)
        scale = self._pool.head_dim**-0.5 if options.scale is None else options.scale
        return paged_attention(
            q, k_pages, v_pages, fb.page_table, fb.q_starts, fb.seq_lens, scale, options.window, options.soft_cap
        )
