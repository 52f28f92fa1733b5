"""FlashInfer's attention against ours and beside it, where the package is installed."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.random_model import LLAMA_8B, PAGE, make_batch, pages_of
from benchmarks.gpu.setting import CheckError, Setting, seconds_of
from sglang_lite.runtime.attention.flashinfer import FlashInferAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.triton import TritonAttention

_SLOWER = 1.15


def check_flashinfer(setting: Setting) -> dict[str, Any]:
    """One layer of the 8B shape: equal to about two roundings, and how much longer ours takes."""
    if not setting.is_gpu or importlib.util.find_spec("flashinfer") is None:
        return {"skipped": "flashinfer is not installed" if setting.is_gpu else "there is no GPU"}
    config = LLAMA_8B
    cases = {
        "decode, 1 row of 4,096": ([1], [4095], 0),
        "decode, 64 rows of 1,024": ([1] * 64, [1023] * 64, 0),
        "decode, 64 rows that share 896 of 1,024": ([1] * 64, [1023] * 64, 56),
        "prompt of 4,096": ([4096], [0], 0),
        "8 chunks of 256 after 1,024": ([256] * 8, [1024] * 8, 0),
    }
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, (extends, prefixes, shared) in cases.items():
        fb = make_batch(extends, prefixes, 100, setting.device, shared)
        sizes = (1, pages_of(fb), config.num_kv_heads, config.head_dim, PAGE)
        pool = KvPool(*sizes, setting.device, torch.bfloat16, token_major=True)
        pool.k.normal_()
        pool.v.normal_()
        q, k, v = (
            torch.randn(fb.num_tokens, heads, config.head_dim, device=setting.device).bfloat16()
            for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        )
        outputs: list[torch.Tensor] = []
        seconds: list[float] = []
        for attention in (TritonAttention(pool, config.num_heads), FlashInferAttention(pool, config.num_heads)):
            attention.plan(fb)
            outputs.append(attention.forward(q, k, v, 0))
            seconds.append(seconds_of(setting, partial(attention.forward, q, k, v, 0), 20))
        error = float((outputs[0].float() - outputs[1].float()).abs().max() / outputs[1].float().abs().max())
        ratio = seconds[0] / seconds[1]
        found[name] = {"error": error, "ours_ms": 1e3 * seconds[0], "theirs_ms": 1e3 * seconds[1], "ratio": ratio}
        found[name]["within 15 %"] = ratio <= _SLOWER
        if error > 2.0**-6:
            wrong.append(f"{name}: error {error:.2e}")
    if wrong:
        raise CheckError("; ".join(wrong), found)
    return found
