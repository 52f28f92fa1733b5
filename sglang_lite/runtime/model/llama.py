"""The Llama decoder: modules, and which tensor of a GGUF file fills which of their weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.layers import Attention, RMSNorm, RotaryEmbedding, SwiGLU
from sglang_lite.runtime.model.linear import Fp32Linear, LinearFactory, LinearMethod
from sglang_lite.runtime.model.weights import WeightPart, interleaved_order


class LlamaLayer(nn.Module):
    """One decoder layer: attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config, layer, linear)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config, linear)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        x = x + self.attn(self.attn_norm(x), angles, attention)
        return x + self.mlp(self.mlp_norm(x))


class LlamaForCausalLM(nn.Module):
    """Llama with its language-model head. Holds weights only; keys and values are the attention backend's."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size), requires_grad=False)
        self.rope = RotaryEmbedding(config)
        self.layers = nn.ModuleList(LlamaLayer(config, i, linear) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head: LinearMethod = (
            Fp32Linear(config.hidden_size, config.vocab_size, self.embed)
            if config.tie_word_embeddings
            else linear(config.hidden_size, config.vocab_size)
        )

    def prepare(self) -> None:
        """Derive tables from loaded weights; called once, after loading."""
        self.rope.prepare()

    @torch.inference_mode()
    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Run all layers on the batch's new tokens.

        Args:
            fb: the batch; `attention.plan(fb)` is called here.
            attention: backend whose pool receives the new keys and values.

        Returns:
            float32 [T, hidden], normalised: what `logits` takes.

        """
        attention.plan(fb)
        x = functional.embedding(fb.input_ids, self.embed)
        angles = self.rope.angles(fb.positions)
        for layer in self.layers:
            x = layer(x, angles, attention)
        return self.norm(x)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, float32 [n, hidden] -> [n, vocab]; pass only the rows that need them."""
        return self.lm_head(hidden)

    @staticmethod
    def gguf_weights(config: ModelConfig) -> Iterator[WeightPart]:
        """Every tensor of a GGUF file of this architecture and where it goes."""
        hidden, dim = config.hidden_size, config.head_dim
        q_rows, kv_rows, inner = config.num_heads * dim, config.num_kv_heads * dim, config.intermediate_size
        yield WeightPart("token_embd.weight", "embed", (config.vocab_size, hidden))
        yield WeightPart("output_norm.weight", "norm.weight", (hidden,))
        yield WeightPart("rope_freqs.weight", "rope.freq_factors", (dim // 2,), optional=True)
        if not config.tie_word_embeddings:
            yield WeightPart("output.weight", "lm_head", (config.vocab_size, hidden))
        # GGUF keeps the rotary pairs of llama's queries and keys side by side; rotation here pairs the two halves.
        q_order, k_order = interleaved_order(config.num_heads, dim), interleaved_order(config.num_kv_heads, dim)
        for i in range(config.num_layers):
            src, dst = f"blk.{i}", f"layers.{i}"
            yield WeightPart(f"{src}.attn_norm.weight", f"{dst}.attn_norm.weight", (hidden,))
            yield WeightPart(f"{src}.attn_q.weight", f"{dst}.attn.qkv", (q_rows, hidden), order=q_order)
            yield WeightPart(f"{src}.attn_k.weight", f"{dst}.attn.qkv", (kv_rows, hidden), first=q_rows, order=k_order)
            yield WeightPart(f"{src}.attn_v.weight", f"{dst}.attn.qkv", (kv_rows, hidden), first=q_rows + kv_rows)
            yield WeightPart(f"{src}.attn_output.weight", f"{dst}.attn.out", (hidden, q_rows))
            yield WeightPart(f"{src}.ffn_norm.weight", f"{dst}.mlp_norm.weight", (hidden,))
            yield WeightPart(f"{src}.ffn_gate.weight", f"{dst}.mlp.gate_up", (inner, hidden))
            yield WeightPart(f"{src}.ffn_up.weight", f"{dst}.mlp.gate_up", (inner, hidden), first=inner)
            yield WeightPart(f"{src}.ffn_down.weight", f"{dst}.mlp.down", (hidden, inner))
