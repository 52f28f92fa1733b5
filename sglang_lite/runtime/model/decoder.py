"""The frame of a decoder model: embedding, layers, norm and head. Knows no architecture and no file."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.layers import RMSNorm, soft_cap
from sglang_lite.runtime.model.linear import DenseLinear, LinearFactory, LinearMethod
from sglang_lite.runtime.model.rope import RotaryEmbedding


class LayerClass(Protocol):
    """Makes decoder layer number `layer`, a module that maps `(x [T, hidden], angles, attention)` to [T, hidden]."""

    def __call__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> nn.Module:
        """Make it with empty weights."""
        ...


class Decoder(nn.Module):
    """A decoder with its language-model head. Holds weights only; keys and values are the attention backend's."""

    def __init__(self, config: ModelConfig, linear: LinearFactory, make_layer: LayerClass) -> None:
        """Make the model with empty weights.

        Args:
            config: its sizes.
            linear: makes the projections.
            make_layer: makes the layers.

        """
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size), requires_grad=False)
        self.rope = RotaryEmbedding(config.rope, config.head_dim)
        self.layers = nn.ModuleList(make_layer(config, i, linear) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head: LinearMethod = (
            DenseLinear(config.hidden_size, config.vocab_size, self.embed)
            if config.tie_word_embeddings
            else linear(config.hidden_size, config.vocab_size)
        )

    @torch.inference_mode()
    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Run all layers on the batch's new tokens.

        Args:
            fb: the batch; `attention.plan(fb)` is called here.
            attention: backend whose pool receives the new keys and values.

        Returns:
            [T, hidden] in the type of the weights, normalised: what `logits` takes.

        """
        attention.plan(fb)
        x = functional.embedding(fb.input_ids, self.embed)
        if self.config.embedding_scale != 1.0:
            x = x.mul_(self.config.embedding_scale)
        angles = self.rope.angles(fb.positions, int(fb.host.seq_lens.max(initial=0)))
        for layer in self.layers:
            x = layer(x, angles, attention)
        return self.norm(x)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, [n, hidden] -> float32 [n, vocab]; pass only the rows that need them."""
        return soft_cap(self.lm_head(hidden).float(), self.config.logit_soft_cap)
