"""Tiny random models of every architecture: transformers' own, saved as folders, and written as GGUF files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers import (
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.support.tiny_gguf import write_tensors

VOCAB = 96
ORIGINAL = 32
"""Context of the RoPE variants before scaling; the tests go beyond it."""

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class TinyModel:
    """One model to build: its class, its configuration and what changes."""

    config_class: Any
    model_class: Any
    settings: dict[str, Any] = field(default_factory=dict)

    def make(self, seed: int = 0) -> Any:
        """Random weights, large enough that logits differ clearly between tokens."""
        torch.manual_seed(seed)
        config = self.config_class(**(_SIZES | self.settings))
        config._attn_implementation = "eager"
        model = self.model_class(config).eval().requires_grad_(False)
        for name, parameter in model.named_parameters():
            parameter.data.normal_(std=0.2)
            if "norm" in name and self.model_class is not Gemma2ForCausalLM:
                parameter.data.add_(1.0)
        return model


def _rope(kind: str, stated: int = ORIGINAL, **values: Any) -> TinyModel:
    parameters = {"rope_type": kind, "rope_theta": 1000.0, "factor": 4.0} | values
    return TinyModel(LlamaConfig, LlamaForCausalLM, {"rope_parameters": parameters, "max_position_embeddings": stated})


GEMMA2 = {
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 5.0,
    "sliding_window": 11,
}

QWEN3_MOE = {
    "head_dim": 32,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

ARCHITECTURES: dict[str, TinyModel] = {
    "llama": TinyModel(LlamaConfig, LlamaForCausalLM),
    "llama with all biases": TinyModel(LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True}),
    "mistral": TinyModel(MistralConfig, MistralForCausalLM, {"sliding_window": 13}),
    "mistral without window": TinyModel(
        MistralConfig, MistralForCausalLM, {"sliding_window": None, "num_key_value_heads": 4}
    ),
    "qwen2": TinyModel(Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen2 with window": TinyModel(
        Qwen2Config, Qwen2ForCausalLM, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
    ),
    "qwen3": TinyModel(Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
    "qwen3 with bias": TinyModel(Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16, "attention_bias": True}),
    "gemma2": TinyModel(Gemma2Config, Gemma2ForCausalLM, GEMMA2),
    "gemma2 without caps": TinyModel(
        Gemma2Config,
        Gemma2ForCausalLM,
        GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False},
    ),
    "mixtral": TinyModel(MixtralConfig, MixtralForCausalLM, {"num_local_experts": 4}),
    "mixtral with window": TinyModel(
        MixtralConfig, MixtralForCausalLM, {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 13}
    ),
    "qwen3moe": TinyModel(Qwen3MoeConfig, Qwen3MoeForCausalLM, QWEN3_MOE),
    "qwen3moe with dense layers": TinyModel(
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        QWEN3_MOE | {"num_hidden_layers": 4, "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    "qwen3moe with window and bias": TinyModel(
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        QWEN3_MOE | {"use_sliding_window": True, "sliding_window": 9, "attention_bias": True},
    ),
}

_YARN = {"original_max_position_embeddings": ORIGINAL}
_LLAMA3 = _YARN | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES: dict[str, TinyModel] = {
    "linear": _rope("linear"),
    "dynamic": _rope("dynamic"),
    "llama3": _rope("llama3", 256, **_LLAMA3),
    "yarn": _rope("yarn", 128, **_YARN),
    "yarn, every number set": _rope(
        "yarn", 128, beta_fast=8.0, beta_slow=0.5, truncate=False, attention_factor=1.3, **_YARN
    ),
    "yarn, two scales": _rope("yarn", 128, mscale=1.5, mscale_all_dim=0.5, **_YARN),
}


def all_logits(model: PreTrainedModel, ids: list[int], one_by_one: bool = False) -> torch.Tensor:
    """Logits after every token, [len(ids), vocab]; in one pass, or token by token with transformers' own cache."""
    with torch.inference_mode():
        if not one_by_one:
            return model(torch.tensor([ids])).logits[0]
        cache = DynamicCache(config=model.config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the older name of the argument works in all of version 5
            rows = [model(torch.tensor([[token]]), past_key_values=cache).logits[0] for token in ids]
    return torch.cat(rows)


def round_to(model: PreTrainedModel, storage: GGMLQuantizationType) -> None:
    """Leave only matrix values that `storage` can hold, so that a file of it is exact."""
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            stored = quantize(parameter.data.numpy(), storage)
            parameter.data.copy_(torch.from_numpy(dequantize(stored, storage).copy()))


_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
_GEMMA2_GGUF_NAMES = _GGUF_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def save_gguf(
    path: Path,
    model: PreTrainedModel,
    architecture: str,
    storage: GGMLQuantizationType = GGMLQuantizationType.F32,
    change: Callable[[dict[str, Any], dict[str, np.ndarray]], None] = lambda metadata, tensors: None,
) -> Path:
    """Write a model as llama.cpp's converter does: its names, llama's row order, Gemma's norms plus one."""
    config: Any = model.config
    tensors = _gguf_tensors(model, architecture)
    sparse = isinstance(model, MixtralForCausalLM | Qwen3MoeForCausalLM)
    metadata: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
    }
    if architecture != "llama":
        head_dim = config.head_dim if architecture != "qwen2" else config.hidden_size // config.num_attention_heads
        metadata |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if architecture == "gemma2":
        metadata |= {
            "attention.sliding_window": config.sliding_window,
            "attn_logit_softcapping": config.attn_logit_softcapping,
            "final_logit_softcapping": config.final_logit_softcapping,
        }
    if sparse:
        metadata |= {"expert_count": config.num_local_experts, "expert_used_count": config.num_experts_per_tok}
    if architecture == "qwen3moe":
        metadata["expert_feed_forward_length"] = config.moe_intermediate_size
    metadata = {f"{architecture}.{key}": value for key, value in metadata.items()}
    metadata["tokenizer.ggml.tokens"] = [f"t{i}" for i in range(config.vocab_size)]
    change(metadata, tensors)
    return write_tensors(path, architecture, metadata, tensors, storage)


def _gguf_tensors(model: PreTrainedModel, architecture: str) -> dict[str, np.ndarray]:
    config: Any = model.config
    names = _GEMMA2_GGUF_NAMES if architecture == "gemma2" else _GGUF_NAMES
    renamed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    renamed["lm_head.weight"] = "output.weight"
    for i in range(config.num_hidden_layers):
        renamed |= {
            f"model.layers.{i}.{theirs}.{kind}": f"blk.{i}.{ours}.{kind}"
            for theirs, ours in names.items()
            for kind in ("weight", "bias")
        }
    tensors: dict[str, np.ndarray] = {}
    for name, value in model.state_dict().items():
        weight = value.float().numpy().copy()
        layer = ".".join(name.split(".")[1:3]).replace("layers", "blk")
        if name.endswith("experts.gate_up_proj"):
            gates, ups = np.split(weight, 2, axis=1)
            tensors |= {f"{layer}.ffn_gate_exps.weight": gates, f"{layer}.ffn_up_exps.weight": ups}
            continue
        if name.endswith("experts.down_proj"):
            tensors[f"{layer}.ffn_down_exps.weight"] = weight
            continue
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
            weight = weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
        if architecture == "gemma2" and "norm" in name:
            weight = weight + 1.0
        tensors[renamed[name]] = weight
    return tensors
