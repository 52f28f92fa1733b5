"""Llama and the models that differ from it by a setting only: Mistral, Qwen2, Qwen3."""

from __future__ import annotations

import torch
from torch import nn

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.layers import Attention, GatedMLP, RMSNorm
from sglang_lite.runtime.model.linear import LinearFactory


class LlamaLayer(nn.Module):
    """One decoder layer: attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory, mlp: nn.Module | None = None) -> None:
        """Make it with empty weights; `mlp` stands in place of the `GatedMLP`."""
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config, layer, linear)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config, linear) if mlp is None else mlp

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        normed, x = self.mlp_norm.add(self.attn(self.attn_norm(x), angles, attention), x)
        return x + self.mlp(normed)


class LlamaForCausalLM(Decoder):
    """A decoder of `LlamaLayer`s."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__(config, linear, LlamaLayer)
