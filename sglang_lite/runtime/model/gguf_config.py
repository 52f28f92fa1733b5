"""Reads a decoder's configuration from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.config import Activation, ExpertsConfig, ModelConfig
from sglang_lite.runtime.model.fields import Fields
from sglang_lite.runtime.model.rope import RopeConfig, yarn_attention_factor

_GEMMA2_27B_LAYERS = 46
_GEMMA2_WINDOW = 4096
_BUILT_EXPERTS = {
    "expert_shared_count": 0,
    "expert_group_count": 1,
    "expert_weights_scale": 1.0,
    "expert_gating_func": 1,  # softmax
    "leading_dense_block_count": 0,
}
"""What experts may state beside their numbers; 0 counts as not stated."""


def gguf_architecture(metadata: Mapping[str, Any], path: Path) -> str:
    """The architecture that GGUF metadata names; `mixtral` for a llama with experts, which is what its files call themselves.

    Raises:
        ModelLoadError: it names none.

    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelLoadError(f"{path}: metadata lacks 'general.architecture', so the kind of model is unknown")
    return "mixtral" if architecture == "llama" and metadata.get("llama.expert_count") else architecture


def gguf_config(metadata: Mapping[str, Any], has_head: bool, path: Path) -> ModelConfig:
    """Read and check the configuration of a file of one of the architectures in the registry.

    Args:
        metadata: as in `GgufFile.metadata`.
        has_head: the file has a head of its own.
        path: named in errors.

    Raises:
        ModelLoadError: keys are missing (all are named) or values contradict each other.

    """
    architecture = gguf_architecture(metadata, path)
    fields = Fields(metadata, path, "metadata", f"{metadata['general.architecture']}.")
    hidden, heads = fields.count("embedding_length"), fields.count("attention.head_count")
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocab = fields.count("vocab_size", default=len(tokens) if isinstance(tokens, list) and tokens else None)
    num_layers, stated = fields.count("block_count"), fields.count("context_length")
    fields.raise_missing()
    head_dim = fields.count("attention.key_length", fields.count("rope.dimension_count", max(hidden // heads, 1)))
    for name in ("rope.dimension_count", "attention.value_length"):
        if fields.count(name, head_dim) != head_dim:
            raise fields.wrong(
                name, f"head_dim {head_dim}: only full rotation and equal key and value widths are built"
            )
    gemma2 = architecture == "gemma2"
    activation: Activation = "gelu_tanh" if gemma2 else "silu"
    rope = _rope(fields)
    config = ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=fields.count("feed_forward_length"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=fields.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab_size=vocab,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        max_position=rope.max_position(stated),
        tie_word_embeddings=not has_head,
        rope=rope,
        windows=_windows(fields, num_layers, gemma2),
        attention_scale=_attention_scale(fields, hidden, heads, num_layers, gemma2),
        attention_soft_cap=fields.number("attn_logit_softcapping", 50.0) if gemma2 else None,
        logit_soft_cap=fields.number("final_logit_softcapping", 30.0) if gemma2 else None,
        embedding_scale=hidden**0.5 if gemma2 else 1.0,
        activation=activation,
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture in ("qwen3", "qwen3moe"),
        experts=_experts(fields, architecture),
    )
    fields.raise_missing()
    config.check(path)
    return config


def _experts(fields: Fields, architecture: str) -> ExpertsConfig | None:
    if architecture not in ("mixtral", "qwen3moe"):
        return None
    for name, built in _BUILT_EXPERTS.items():
        if fields.get(name, built) not in (0, built):
            raise fields.wrong(name, f"{built}: nothing else is built")
    inner = fields.optional_count("expert_feed_forward_length") if architecture == "qwen3moe" else None
    return ExpertsConfig(
        count=fields.count("expert_count"),
        per_token=fields.count("expert_used_count"),
        intermediate_size=inner or fields.count("feed_forward_length"),
        renormalise=fields.flag("expert_weights_norm", True),
    )


def _windows(fields: Fields, num_layers: int, gemma2: bool) -> tuple[int | None, ...]:
    """Gemma 2: every other layer, from the first; else every layer if the file has a window at all."""
    window = (
        fields.count("attention.sliding_window", _GEMMA2_WINDOW) if gemma2 else fields.get("attention.sliding_window")
    )
    if not window:
        return ()
    window = fields.count("attention.sliding_window", window)
    return tuple(None if gemma2 and i % 2 else window for i in range(num_layers))


def _attention_scale(fields: Fields, hidden: int, heads: int, num_layers: int, gemma2: bool) -> float | None:
    """The file's own; the one Gemma 2 whose scale is not that of its head width is known by its number of layers."""
    if gemma2 and num_layers == _GEMMA2_27B_LAYERS and fields.get("attention.scale") is None:
        return (hidden / heads) ** -0.5
    return fields.optional_number("attention.scale")


def _rope(fields: Fields) -> RopeConfig:
    theta = fields.number("rope.freq_base", 10000.0)
    kind = fields.get("rope.scaling.type", "none")
    if kind == "none" and fields.get("rope.scale_linear") is not None:  # the key of files of 2023
        return RopeConfig("linear", theta, fields.number("rope.scale_linear"))
    if kind == "none":
        return RopeConfig("default", theta)
    factor = fields.number("rope.scaling.factor")
    if kind == "linear":
        return RopeConfig("linear", theta, factor)
    if kind == "yarn":
        scale = fields.number("rope.scaling.yarn_attn_factor", fields.number("rope.scaling.attn_factor", 1.0))
        return RopeConfig(
            "yarn",
            theta,
            factor,
            fields.count("rope.scaling.original_context_length"),
            beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=scale * yarn_attention_factor(factor),
        )
    raise ModelLoadError(f"{fields.path}: rope scaling of type {kind!r} is not built (known: none, linear, yarn)")
