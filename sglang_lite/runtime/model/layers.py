"""The layers that decoder models share. Weights live in `LinearMethod`s and plain parameters."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.linear import LinearFactory


class RMSNorm(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class RotaryEmbedding(nn.Module):
    """Rotates the two halves of each head by angles that grow with the position (the NeoX order).

    The angles are computed in float64 and their cosines and sines kept as float32 tables `[max_position, head_dim]`.

    Attributes:
        freq_factors: float32 [head_dim / 2], each frequency is divided by its factor (1 unless the file says otherwise).

    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self._config = config
        self.freq_factors = nn.Parameter(torch.ones(config.head_dim // 2), requires_grad=False)
        self._cos = torch.empty(0)
        self._sin = torch.empty(0)

    def prepare(self) -> None:
        """Compute the tables; called when `freq_factors` is final."""
        config = self._config
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
        frequencies = config.rope_theta ** (-half / config.head_dim) / self.freq_factors.double()
        positions = torch.arange(config.max_position, dtype=torch.float64)
        if config.rope_scaling is not None:
            positions = positions / config.rope_scaling.factor
        angles = torch.outer(positions, frequencies)
        cos, sin = angles.cos().float(), angles.sin().float()
        self._cos = torch.cat((cos, cos), dim=-1)
        self._sin = torch.cat((-sin, sin), dim=-1)

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [T, 1, head_dim] for int64 positions [T]; shared by all layers of a step."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)

    @staticmethod
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate x [T, heads, head_dim]."""
        half = x.shape[-1] // 2
        swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
        return torch.addcmul(x * cos, swapped, sin)


class Attention(nn.Module):
    """Self-attention with query, key and value projections merged into one matrix."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self._layer = layer
        self._head_dim = config.head_dim
        self._heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.qkv = linear(config.hidden_size, sum(self._heads) * config.head_dim)
        self.out = linear(config.num_heads * config.head_dim, config.hidden_size)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]; writes the layer's KV through `attention`."""
        heads = self.qkv(x).view(len(x), sum(self._heads), self._head_dim)
        n_q, n_kv, _ = self._heads
        rotated = RotaryEmbedding.rotate(heads[:, : n_q + n_kv], *angles)
        values = attention.forward(rotated[:, :n_q], rotated[:, n_q:], heads[:, n_q + n_kv :], self._layer)
        return self.out(values.flatten(1))


class SwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))` with gate and up merged into one matrix, gate first."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__()
        self.gate_up = linear(config.hidden_size, 2 * config.intermediate_size)
        self.down = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate).mul_(up))
