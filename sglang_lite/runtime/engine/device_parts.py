"""What a GPU brings to an engine: its free memory, attention, graphs and 4-bit products. Imports what is for GPUs when it is asked."""

from __future__ import annotations

from typing import Protocol

import torch

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.flashinfer import FlashInferAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.graph_model import GraphFactory
from sglang_lite.runtime.model.linear_q4 import Q4Packer


class DeviceParts(Protocol):
    """One device, for as long as an engine runs on it."""

    def free_bytes(self) -> int:
        """Memory that nobody has taken, bytes."""
        ...

    def make_attention(self, kind: str, pool: KvPool, num_heads: int, *, deterministic: bool) -> AttentionBackend:
        """The implementation called `kind` (`triton`, `flashinfer`, `torch_ref`) over `pool`, whose keys lie token by token.

        Raises:
            UnsupportedError: its package is missing or too old, or it does not take this pool.

        """
        ...

    def make_graphs(self) -> GraphFactory:
        """Where captured graphs come from."""
        ...

    def q4_packer(self, *, deterministic: bool) -> Q4Packer:
        """Who brings 4-bit matrices there; `deterministic`: a row's product does not depend on how many rows there are."""
        ...


class CudaParts:
    """`DeviceParts` of the GPU that is visible first."""

    def free_bytes(self) -> int:
        """See `DeviceParts`; what torch keeps for itself without using it counts as free."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(0)[0]

    def make_attention(self, kind: str, pool: KvPool, num_heads: int, *, deterministic: bool) -> AttentionBackend:
        """See `DeviceParts`."""
        if kind == "torch_ref":
            return TorchAttention(pool)
        if kind == "flashinfer":
            return FlashInferAttention(pool, num_heads)
        from sglang_lite.runtime.attention.triton import TritonAttention  # triton: on GPUs only

        return TritonAttention(pool, num_heads, deterministic=deterministic)

    def make_graphs(self) -> GraphFactory:
        """See `DeviceParts`."""
        from sglang_lite.runtime.execution.cuda_graph import CudaGraphs

        return CudaGraphs()

    def q4_packer(self, *, deterministic: bool) -> Q4Packer:
        """See `DeviceParts`."""
        from sglang_lite.runtime.model.q4_kernels import TritonPacker  # triton: on GPUs only

        return TritonPacker(deterministic)
