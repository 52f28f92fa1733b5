"""Tiny random Llama models: transformers' own, and the same written as a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 64


@dataclass(frozen=True)
class TinyLlama:
    """Sizes of a tiny model; rows are multiples of 32, as Q8_0 needs."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    layers: int = 2
    tied: bool = False
    storage: GGMLQuantizationType = GGMLQuantizationType.F32

    @property
    def hidden(self) -> int:
        return self.heads * self.head_dim


def make_model(tiny: TinyLlama, seed: int = 0) -> LlamaForCausalLM:
    """A random model whose matrices hold only values that `tiny.storage` can hold."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=tiny.hidden,
        intermediate_size=96,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        num_key_value_heads=tiny.kv_heads,
        head_dim=tiny.head_dim,
        max_position_embeddings=512,
        tie_word_embeddings=tiny.tied,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(std=0.2)
        if "norm" in name:
            parameter.data.add_(1.0)
        else:
            stored = quantize(parameter.data.numpy(), tiny.storage)
            parameter.data.copy_(torch.from_numpy(dequantize(stored, tiny.storage).copy()))
    return model


def gguf_tensors(model: LlamaForCausalLM, tiny: TinyLlama) -> dict[str, np.ndarray]:
    """The model's weights under GGUF's names, queries and keys in llama's interleaved row order."""
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    if not tiny.tied:
        tensors["output.weight"] = state["lm_head.weight"]
    for i in range(tiny.layers):
        for theirs, ours in names.items():
            weight = state[f"model.layers.{i}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                heads = tiny.heads if ours == "attn_q" else tiny.kv_heads
                weight = weight.reshape(heads, 2, tiny.head_dim // 2, -1).swapaxes(1, 2).reshape(weight.shape)
            tensors[f"blk.{i}.{ours}.weight"] = weight
    return tensors


def metadata_of(tiny: TinyLlama) -> dict[str, Any]:
    """The GGUF metadata of a tiny model, without `general.architecture`."""
    return {
        "llama.block_count": tiny.layers,
        "llama.context_length": 512,
        "llama.embedding_length": tiny.hidden,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": tiny.heads,
        "llama.attention.head_count_kv": tiny.kv_heads,
        "llama.rope.freq_base": 1000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(VOCAB)],
    }


def write_gguf(
    path: Path,
    tiny: TinyLlama,
    tensors: dict[str, np.ndarray],
    change: Callable[[dict[str, Any]], None] = lambda metadata: None,
    architecture: str = "llama",
) -> Path:
    """Write tensors in `tiny.storage` (norms as float32) and the metadata after `change`."""
    metadata = metadata_of(tiny)
    change(metadata)
    return write_tensors(path, architecture, metadata, tensors, tiny.storage)


def write_tensors(
    path: Path,
    architecture: str,
    metadata: dict[str, Any],
    tensors: dict[str, np.ndarray],
    storage: GGMLQuantizationType,
) -> Path:
    """Write metadata and tensors: matrices in `storage`, the rest as float32."""
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    for name, tensor in tensors.items():
        kind = storage if tensor.ndim >= 2 else GGMLQuantizationType.F32
        stored = quantize(np.ascontiguousarray(tensor), kind)
        raw_shape = stored.shape if kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16) else None
        writer.add_tensor(name, stored, raw_shape=raw_shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
