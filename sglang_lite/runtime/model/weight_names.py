"""What the tensors of decoder models are called in each kind of file, and which weight each one fills."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.expert_names import (
    GGUF_EXPERTS,
    MIXTRAL_FOLDER_EXPERTS,
    QWEN3_MOE_FOLDER_EXPERTS,
    ExpertNames,
    expert_parts,
    layout_of,
)
from sglang_lite.runtime.model.tensors import TensorSource
from sglang_lite.runtime.model.weights import WeightPart, interleaved_order


@dataclass(frozen=True)
class Names:
    """One kind of file.

    Attributes:
        embed: the embedding.
        norm: the last norm.
        head: the head.
        layer: what stands before a layer's names, with `{}` for its number.
        parts: names inside a layer, without `.weight` or `.bias`. `attn_post_norm` and `mlp_post_norm`: only where the
            architecture has them.
        freq_factors: factors of the rotary frequencies; None where the file cannot hold any.
        norm_plus: what the file's norm weights lack to ours.
        interleaved: rotary pairs of queries and keys lie side by side; rotation here pairs the two halves.
        experts: layouts of a layer's experts, of which a file has one.

    """

    embed: str
    norm: str
    head: str
    layer: str
    parts: Mapping[str, str] = field(repr=False)
    freq_factors: str | None = None
    norm_plus: float = 0.0
    interleaved: bool = False
    experts: tuple[ExpertNames, ...] = ()

    def of_file(self, config: ModelConfig, tensors: Container[str]) -> Names:
        """These names with the one layout of experts that a file of `tensors` has."""
        sparse = next((i for i in range(config.num_layers) if config.experts_of(i)), None)
        if sparse is None:
            return self
        return replace(self, experts=(layout_of(self.experts, self.layer.format(sparse), tensors),))


_FOLDER_PARTS = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "out": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GGUF_PARTS = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "out": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_GEMMA2_FOLDER_PARTS = _FOLDER_PARTS | {
    "attn_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_GEMMA2_GGUF_PARTS = _GGUF_PARTS | {"attn_post_norm": "post_attention_norm", "mlp_post_norm": "post_ffw_norm"}

_FOLDER = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.{}.")
_GGUF = ("token_embd.weight", "output_norm.weight", "output.weight", "blk.{}.")

FOLDER_NAMES = Names(*_FOLDER, _FOLDER_PARTS)
GEMMA2_FOLDER_NAMES = Names(*_FOLDER, _GEMMA2_FOLDER_PARTS, norm_plus=1.0)
LLAMA_GGUF_NAMES = Names(*_GGUF, _GGUF_PARTS, freq_factors="rope_freqs.weight", interleaved=True)
GGUF_NAMES = Names(*_GGUF, _GGUF_PARTS, freq_factors="rope_freqs.weight")
GEMMA2_GGUF_NAMES = Names(*_GGUF, _GEMMA2_GGUF_PARTS)
MIXTRAL_FOLDER_NAMES = replace(FOLDER_NAMES, experts=MIXTRAL_FOLDER_EXPERTS)
MIXTRAL_GGUF_NAMES = replace(LLAMA_GGUF_NAMES, experts=GGUF_EXPERTS)
QWEN3_MOE_FOLDER_NAMES = replace(FOLDER_NAMES, experts=QWEN3_MOE_FOLDER_EXPERTS)
QWEN3_MOE_GGUF_NAMES = replace(GGUF_NAMES, experts=GGUF_EXPERTS)


@dataclass(frozen=True)
class WeightSource:
    """A model file or folder opened for whoever packs weights.

    Attributes:
        tensors: the file or folder.
        names: what it calls them.
        int8: its matrices are rounded to int8 in groups of 32 (Q8_0); False: they stay as they are stored.
        ignored: tensors that no weight is made from and that change no result.

    """

    tensors: TensorSource
    names: Names
    int8: bool = False
    ignored: frozenset[str] = frozenset()


def weight_parts(config: ModelConfig, names: Names) -> Iterator[WeightPart]:
    """Every tensor of a model and where it goes; of several layouts of experts, the first (`Names.of_file`)."""
    hidden = config.hidden_size
    yield WeightPart(names.embed, "embed", (config.vocab_size, hidden))
    yield WeightPart(names.norm, "norm.weight", (hidden,), plus=names.norm_plus)
    if names.freq_factors is not None:
        yield WeightPart(names.freq_factors, "rope.freq_factors", (config.head_dim // 2,), optional=True)
    if not config.tie_word_embeddings:
        yield WeightPart(names.head, "lm_head", (config.vocab_size, hidden))
    for i in range(config.num_layers):
        source, target = names.layer.format(i), f"layers.{i}."
        yield from _norms(config, names, source, target)
        yield from _attention(config, names, source, target + "attn.")
        experts = config.experts_of(i)
        if experts is None:
            yield from _mlp(config, names, source, target + "mlp.")
        else:
            yield from expert_parts(names.experts[0], experts, hidden, source, target + "mlp.")


def _norms(config: ModelConfig, names: Names, source: str, target: str) -> Iterator[WeightPart]:
    sizes = dict.fromkeys(("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"), config.hidden_size)
    if config.qk_norm:
        sizes |= {"q_norm": config.head_dim, "k_norm": config.head_dim}
    for part, size in sizes.items():
        if part in names.parts:
            owner = f"attn.{part}" if part in ("q_norm", "k_norm") else part
            name = f"{source}{names.parts[part]}.weight"
            yield WeightPart(name, f"{target}{owner}.weight", (size,), plus=names.norm_plus)


def _attention(config: ModelConfig, names: Names, source: str, target: str) -> Iterator[WeightPart]:
    heads = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
    first = 0
    for part, count in heads.items():
        rows = count * config.head_dim
        order: np.ndarray | None = None
        if names.interleaved and part != "v":
            order = interleaved_order(count, config.head_dim)
        name = source + names.parts[part]
        yield WeightPart(f"{name}.weight", f"{target}qkv", (rows, config.hidden_size), first, order)
        if config.qkv_bias:
            yield WeightPart(f"{name}.bias", f"{target}qkv_bias", (rows,), first, order)
        first += rows
    name = source + names.parts["out"]
    yield WeightPart(f"{name}.weight", f"{target}out", (config.hidden_size, config.num_heads * config.head_dim))
    if config.out_bias:
        yield WeightPart(f"{name}.bias", f"{target}out_bias", (config.hidden_size,))


def _mlp(config: ModelConfig, names: Names, source: str, target: str) -> Iterator[WeightPart]:
    hidden, inner = config.hidden_size, config.intermediate_size
    for part, weight, first, shape in (
        ("gate", "gate_up", 0, (inner, hidden)),
        ("up", "gate_up", inner, (inner, hidden)),
        ("down", "down", 0, (hidden, inner)),
    ):
        name = source + names.parts[part]
        yield WeightPart(f"{name}.weight", target + weight, shape, first)
        if config.mlp_bias:
            yield WeightPart(f"{name}.bias", f"{target}{weight}_bias", shape[:1], first)
