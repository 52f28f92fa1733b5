"""The small operations of a layer on any device: torch on the CPU, one Triton kernel each on a GPU. Knows no model."""

from __future__ import annotations

import torch
from torch.nn import functional

from sglang_lite.runtime.model import gpu
from sglang_lite.runtime.model.rope import RotaryEmbedding


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis of x, [T, H] or [T, n, H], in the type of x, computed in float32."""
    if not gpu.is_on_gpu(x):
        return functional.rms_norm(x, weight.shape, weight, eps)
    from sglang_lite.kernels.triton import norm  # triton: on GPUs only

    return norm.rms_norm(x, weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`total = x + residual`, both [T, H]; returns total normalised as by `rms_norm`, and total."""
    if not gpu.is_on_gpu(x):
        total = residual + x
        return rms_norm(total, weight, eps), total
    from sglang_lite.kernels.triton import norm  # triton: on GPUs only

    return norm.add_rms_norm(x, residual, weight, eps)


def rotate(heads: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate heads [T, n, D] by what `RotaryEmbedding.angles` gave for the step; the type of `heads` stays."""
    if not gpu.is_on_gpu(heads):
        return RotaryEmbedding.rotate(heads, *angles).to(heads.dtype)
    from sglang_lite.kernels.triton import rope  # triton: on GPUs only

    return rope.rotate(heads, *angles)


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """`act(gate) * up` of [T, 2 I], gates first; `activation`: `silu` or `gelu_tanh`."""
    if not gpu.is_on_gpu(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        gate = functional.silu(gate) if activation == "silu" else functional.gelu(gate, approximate="tanh")
        return gate.mul_(up)
    from sglang_lite.kernels.triton import silu  # triton: on GPUs only

    return silu.gated(gate_up, activation)
