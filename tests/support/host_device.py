"""An engine that goes the way of a GPU, with main memory in its place: device runner, graphs, overlap, keys token by token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine import engine as engine_module
from sglang_lite.runtime.engine.build import EngineParts, build_parts
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.placement import Placement
from tests.support.fake_graphs import FakeGraphs
from tests.support.static_attention import StaticAttention

MEMORY = 2 << 30


@dataclass
class HostMatrix:
    """A `Q4Matrix` in float32."""

    weight: torch.Tensor

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return (x.float() @ self.weight.T).to(x.dtype)


class HostQ4:
    """A `Q4Packer` that turns matrices into float32; notes their storage."""

    def __init__(self) -> None:
        self.packed: list[str] = []

    def __call__(self, raw: np.ndarray, kind: str, device: str) -> HostMatrix:
        self.packed.append(kind)
        return HostMatrix(torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]).copy()).to(device))


class HostParts:
    """`DeviceParts` in main memory. Loading takes `taken` bytes of the `MEMORY` there is; rows have up to `tokens` tokens."""

    def __init__(self, taken: int = 0, tokens: int = 256) -> None:
        self.taken = taken
        self.tokens = tokens
        self.kinds: list[str] = []
        self.pools: list[KvPool] = []
        self.graphs: list[FakeGraphs] = []
        self.q4 = HostQ4()

    def free_bytes(self) -> int:
        return MEMORY - self.taken

    def make_attention(self, kind: str, pool: KvPool, num_heads: int, *, deterministic: bool) -> AttentionBackend:
        self.kinds.append(kind)
        if kind == "flashinfer":
            raise UnsupportedError("it does not take this pool")
        self.pools.append(pool)
        if kind == "torch_ref":
            return TorchAttention(pool)
        return StaticAttention(pool, -(-self.tokens // pool.page_size))

    def make_graphs(self) -> FakeGraphs:
        self.graphs.append(FakeGraphs(self.pools))
        return self.graphs[-1]

    def q4_packer(self, *, deterministic: bool) -> HostQ4:
        return self.q4


def host_placement(config: EngineConfig, parts: HostParts | None = None, **changes: Any) -> Placement:
    """As a GPU would get it, in float32."""
    values: dict[str, Any] = {
        "config": config,
        "device": "cpu",
        "dtype": torch.float32,
        "keeps_q4": False,
        "attention": "triton",
        "kv_dtype": torch.float32,
        "overlap": True,
        "graphs": True,
        "mem_fraction": 0.5,
        "name": "main memory",
        "parts": parts or HostParts(),
        "free_bytes": MEMORY,
    }
    return Placement(**(values | changes))


@contextmanager
def host_device_engine(
    model_path: str | None = None,
    parts: HostParts | None = None,
    changes: dict[str, Any] | None = None,
    **server_args: Any,
) -> Iterator[Engine]:
    """An engine of that kind; `changes`: of its placement."""

    def build(config: EngineConfig) -> EngineParts:
        return build_parts(config, host_placement(config, parts, **(changes or {})))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "build_parts", build)
        engine = Engine(model_path, **({"max_total_tokens": 512, "num_threads": 1} | server_args))
    with engine:
        yield engine
