"""A tiny model whose every operation goes through the GPU's kernels, under Triton's interpreter, beside the same on torch.

Run by `test_model.py`; prints a line for each comparison that held.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from gguf import GGMLQuantizationType

from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.model import gpu
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from sglang_lite.runtime.model.model_form import ModelForm
from sglang_lite.runtime.model.q4_kernels import TritonPacker
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf
from tests.support.tiny_models import ARCHITECTURES

STEPS = [
    [("a", [7, 3, 60, 11, 4, 4, 2]), ("b", [9])],
    [("a", [33]), ("b", [8])],
    [("b", [1, 5, 12, 50, 13]), ("a", [40])],
]
"""Prompts, a decode step, and both in one."""


def logits_of(loaded: LoadedModel, dtype: torch.dtype, on_kernels: bool) -> torch.Tensor:
    config = loaded.config
    pool = KvPool(config.num_layers, 16, config.num_kv_heads, config.head_dim, 4, dtype=dtype, token_major=True)
    attention = TritonAttention(pool, config.num_heads) if on_kernels else TorchAttention(pool)
    driver, rows = PagedDriver(loaded.module, pool, attention), {"a": Sequence(), "b": Sequence()}
    gpu.is_on_gpu = lambda x: on_kernels
    return torch.cat([driver.step([(rows[name], ids) for name, ids in step]) for step in STEPS])


def compare(what: str, path: Path, dtype: torch.dtype, tolerance: float) -> None:
    on_torch = load_model(path, form=ModelForm("cpu", dtype))
    on_kernels = load_model(path, form=ModelForm("cpu", dtype, TritonPacker(deterministic=True)))
    expected, got = logits_of(on_torch, dtype, False), logits_of(on_kernels, dtype, True)
    away = float((got - expected).abs().max() / expected.std())
    assert away <= tolerance, f"{what}: {away} standard deviations away, allowed {tolerance}"
    print(what)


def main(folder: Path) -> None:
    tiny = TinyLlama(layers=1, storage=GGMLQuantizationType.Q4_1)
    path = write_gguf(folder / "q4.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    compare("llama with 4-bit matrices in float32", path, torch.float32, 1e-4)
    compare("llama with 4-bit matrices in bfloat16", path, torch.bfloat16, 0.2)
    for name in ("qwen3", "gemma2"):
        model = ARCHITECTURES[name].make()
        model.save_pretrained(folder / name)
        compare(f"{name} in float32", folder / name, torch.float32, 1e-4)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
