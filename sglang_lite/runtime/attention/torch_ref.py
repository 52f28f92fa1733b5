"""The attention backend in plain torch: any device, no compiler, the oracle of the others."""

from __future__ import annotations

import torch

from sglang_lite.kernels.reference.int8_heads import round_heads
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
        k_pages, v_pages = self._pool.transposed_keys(layer), self._pool.v[layer]
        if self._pool.v.dtype == torch.int8:
            k_pages, v_pages = self._stored_int8(k, v, k_pages, v_pages, layer)
        else:
            store_kv(k, v, k_pages, v_pages, fb.out_slots)
        scale = self._pool.head_dim**-0.5 if options.scale is None else options.scale
        return paged_attention(
            q, k_pages, v_pages, fb.page_table, fb.q_starts, fb.seq_lens, scale, options.window, options.soft_cap
        )

    def _stored_int8(
        self, k: torch.Tensor, v: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Round and store the new tokens; returns all pages of the layer as float32."""
        assert self._batch is not None, "there is a plan"
        slots, size = self._batch.out_slots, self._pool.page_size
        (k8, k_worth), (v8, v_worth) = round_heads(k), round_heads(v)
        store_kv(k8, v8, k_pages, v_pages, slots)
        k_scales, v_scales = self._pool.k_scales[layer], self._pool.v_scales[layer]
        k_scales[slots // size, :, slots % size], v_scales[slots // size, :, slots % size] = k_worth, v_worth
        return k_pages * k_scales[:, :, None], v_pages * v_scales[..., None]
