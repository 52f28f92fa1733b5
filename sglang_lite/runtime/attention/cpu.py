"""The attention backend of the CPU: Numba kernels over the paged pool."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.cpu.features import has_half
from sglang_lite.kernels.cpu.paged_attention import NO_SOFT_CAP, TILE_FIELDS, paged_attention, scratch_floats
from sglang_lite.kernels.cpu.parallel_attention import paged_attention_on
from sglang_lite.kernels.cpu.shared_tiles import plan_batch_tiles
from sglang_lite.kernels.cpu.simd import FLOAT_BYTES, HALF_BYTES, INT8_BYTES, LANES
from sglang_lite.kernels.cpu.store_kv import store_kv
from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.kernels.reference.int8_heads import round_heads
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool

_WORTH_THREADS = 5_000_000
"""Floating-point operations of one layer (about 0.1 ms of one core) from which starting the other threads pays."""


class CpuAttention:
    """`AttentionBackend` over `pool`; results are equal to the bit for every number of threads."""

    def __init__(self, pool: KvPool, num_heads: int, threads: KernelThreads) -> None:
        """Bind to a pool.

        Args:
            pool: keys and values, float32, float16 or int8 in main memory; head_dim a multiple of 16, page_size a divisor or multiple of 16.
            num_heads: query heads; a multiple of the pool's kv heads.
            threads: who computes.

        """
        assert self.supports(pool.head_dim, pool.page_size, pool.k.dtype), (
            f"head_dim {pool.head_dim}, page_size {pool.page_size}, {pool.k.dtype}"
        )
        assert not pool.token_major, "the CPU's kernels read transposed keys: make the pool with token_major=False"
        self._pool = pool
        self._threads = threads
        self._group = num_heads // pool.num_kv_heads
        self._item = pool.k.dtype.itemsize
        self._k, self._v = _stored(pool.k), _stored(pool.v)
        none = np.zeros((pool.num_layers, 1, 1, 1), dtype=np.float32)
        int8 = self._item == INT8_BYTES
        self._k_scales, self._v_scales = (pool.k_scales.numpy(), pool.v_scales.numpy()) if int8 else (none, none)
        size = scratch_floats(self._group, pool.head_dim)
        self._scratch = np.empty((threads.count, size), dtype=np.float32)
        self._batch: ForwardBatch | None = None
        self._tiles = np.empty((0, TILE_FIELDS), dtype=np.int32)
        self._parallel = False

    @staticmethod
    def supports(head_dim: int, page_size: int, dtype: torch.dtype = torch.float32) -> bool:
        """Whether the kernels take these sizes and keys and values of `dtype`; where not, `TorchAttention` does."""
        known = dtype in (torch.float32, torch.int8) or (dtype == torch.float16 and has_half())
        return known and head_dim % LANES == 0 and (LANES % page_size == 0 or page_size % LANES == 0)

    def plan(self, fb: ForwardBatch) -> None:
        """See `AttentionBackend.plan`."""
        assert fb.page_size == self._pool.page_size, (
            f"batch pages of {fb.page_size}, pool pages of {self._pool.page_size}"
        )
        host = fb.host
        extend = np.diff(host.q_starts)
        pairs = int((extend * (host.seq_lens - extend // 2)).sum(dtype=np.int64))
        operations = 4 * pairs * self._group * self._pool.num_kv_heads * self._pool.head_dim
        self._parallel = self._threads.count > 1 and operations >= _WORTH_THREADS
        rows = (host.q_starts, host.seq_lens, host.page_table)
        self._tiles = plan_batch_tiles(*rows, fb.page_size, self._pool.num_kv_heads, self._group)
        self._batch = fb

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`."""
        assert self._batch is not None, "forward needs a plan: call plan(forward_batch) first"
        host = self._batch.host
        k_pages, v_pages = self._k[layer], self._v[layer]
        k_scales, v_scales = self._k_scales[layer], self._v_scales[layer]
        new_k, new_v = self._as_stored(k, k_scales, host.out_slots), self._as_stored(v, v_scales, host.out_slots)
        store_kv(_numpy(new_k), _numpy(new_v), k_pages, v_pages, host.out_slots)
        out = torch.empty(q.shape)
        batch = (k_scales, v_scales, host.page_table, host.q_starts, host.seq_lens, self._tiles)
        numbers = self._numbers(options)
        if self._parallel:
            paged_attention_on(self._threads, _numpy(q), k_pages, v_pages, *batch, self._scratch, out.numpy(), *numbers)
        else:
            paged_attention(_numpy(q), k_pages, v_pages, *batch, self._scratch[0], out.numpy(), *numbers)
        return out

    def _as_stored(self, x: torch.Tensor, scales: np.ndarray, slots: np.ndarray) -> torch.Tensor:
        """New keys or values as the pool keeps them; puts down the scales of int8 ones."""
        if self._item == FLOAT_BYTES:
            return x
        if self._item == HALF_BYTES:
            return x.half().view(torch.int16)
        whole, worth = round_heads(x)
        scales[slots // self._pool.page_size, :, slots % self._pool.page_size] = worth.numpy()
        return whole

    def _numbers(self, options: LayerAttention) -> tuple[np.float32, int, np.float32, int]:
        """Scale, window, soft cap and bytes of a stored number as the kernel takes them."""
        scale = self._pool.head_dim**-0.5 if options.scale is None else options.scale
        soft_cap = NO_SOFT_CAP if options.soft_cap is None else np.float32(options.soft_cap)
        return np.float32(scale), options.window or 0, soft_cap, self._item


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as a contiguous array; copies only what is strided."""
    return tensor.contiguous().numpy()


def _stored(pool: torch.Tensor) -> np.ndarray:
    """A pool's memory; float16 under a name of two bytes that the compiler knows."""
    return (pool.view(torch.int16) if pool.dtype == torch.float16 else pool).numpy()
