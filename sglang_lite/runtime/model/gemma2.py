"""Gemma 2: norms before and after attention and MLP; its caps, scales and windows are settings (`ModelConfig`)."""

from __future__ import annotations

import torch
from torch import nn

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.layers import Attention, GatedMLP, RMSNorm
from sglang_lite.runtime.model.linear import LinearFactory


class Gemma2Layer(nn.Module):
    """One decoder layer: attention and MLP, each between two norms and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config, layer, linear)
        self.attn_post_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config, linear)
        self.mlp_post_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        attended = self.attn_post_norm(self.attn(self.attn_norm(x), angles, attention))
        normed, x = self.mlp_norm.add(attended, x)
        return x + self.mlp_post_norm(self.mlp(normed))


class Gemma2ForCausalLM(Decoder):
    """A decoder of `Gemma2Layer`s."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__(config, linear, Gemma2Layer)
