"""The layers that decoder models share. Weights live in `LinearMethod`s and plain parameters."""

from __future__ import annotations

import torch
from torch import nn

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.device_ops import add_rms_norm, gated, rms_norm, rotate
from sglang_lite.runtime.model.linear import LinearFactory


class RMSNorm(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of x and `residual`, both [T, size], normalised; and the sum."""
        return add_rms_norm(x, residual, self.weight, self.eps)


class Attention(nn.Module):
    """Self-attention with query, key and value projections merged into one matrix.

    Attributes:
        qkv: the merged projection, queries first.
        out: the output projection.
        qkv_bias: in the type of the weights, or None.
        out_bias: in the type of the weights, or None.
        q_norm: norm of each query head before rotation, or None.
        k_norm: norm of each key head before rotation, or None.
        options: what the layer asks of the attention backend.

    """

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self._layer = layer
        self._head_dim = config.head_dim
        self._heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        rows = sum(self._heads) * config.head_dim
        self.qkv = linear(config.hidden_size, rows)
        self.out = linear(config.num_heads * config.head_dim, config.hidden_size)
        self.qkv_bias = _bias(rows, config.qkv_bias)
        self.out_bias = _bias(config.hidden_size, config.out_bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.options = config.attention_of(layer)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]; writes the layer's KV through `attention`."""
        n_q, n_kv, _ = self._heads
        heads = _plus(self.qkv(x), self.qkv_bias).view(len(x), sum(self._heads), self._head_dim)
        rotary = heads[:, : n_q + n_kv]
        if self.q_norm is not None and self.k_norm is not None:
            rotary = torch.cat((self.q_norm(rotary[:, :n_q]), self.k_norm(rotary[:, n_q:])), dim=1)
        rotated = rotate(rotary, angles)
        q, k, v = rotated[:, :n_q], rotated[:, n_q:], heads[:, n_q + n_kv :]
        values = attention.forward(q, k, v, self._layer, self.options)
        return _plus(self.out(values.flatten(1)), self.out_bias)


class GatedMLP(nn.Module):
    """`down(act(gate(x)) * up(x))` with gate and up merged into one matrix, gate first."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__()
        self.gate_up = linear(config.hidden_size, 2 * config.intermediate_size)
        self.down = linear(config.intermediate_size, config.hidden_size)
        self.gate_up_bias = _bias(2 * config.intermediate_size, config.mlp_bias)
        self.down_bias = _bias(config.hidden_size, config.mlp_bias)
        self._activation = config.activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        inner = gated(_plus(self.gate_up(x), self.gate_up_bias), self._activation)
        return _plus(self.down(inner), self.down_bias)


def soft_cap(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """`cap * tanh(x / cap)`; x itself where `cap` is None."""
    return x if cap is None else torch.tanh(x / cap).mul_(cap)


def _bias(size: int, wanted: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(size), requires_grad=False) if wanted else None


def _plus(x: torch.Tensor, bias: nn.Parameter | None) -> torch.Tensor:
    """Add in place: `x` is a fresh product."""
    return x if bias is None else x.add_(bias)
