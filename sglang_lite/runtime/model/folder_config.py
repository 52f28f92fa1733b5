"""Reads a decoder's configuration from the config.json of a model folder, in the forms of transformers 4 and 5."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.config import Activation, ExpertsConfig, ModelConfig
from sglang_lite.runtime.model.fields import Fields
from sglang_lite.runtime.model.rope import ROPE_KINDS, RopeConfig, yarn_attention_factor

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

# What transformers assumes where a file is silent.
_WINDOW = 4096
_QWEN_FULL_LAYERS = 28
_HEAD_DIMS = {"qwen3": 128, "gemma2": 256}
_EPSILONS = {"mixtral": 1e-5}
_THETAS = {"mixtral": 1e6}


def read_config_json(folder: Path) -> dict[str, Any]:
    """The contents of a folder's config.json.

    Raises:
        ModelLoadError: it is missing or no JSON object.

    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelLoadError(f"{folder}: no config.json; a model folder has one beside its weights") from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: not readable as JSON ({error}); download it again") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: holds a {type(values).__name__}, expected an object")
    return values


def folder_architecture(values: Mapping[str, Any], path: Path) -> str:
    """The class that config.json names first (`LlamaForCausalLM`).

    Raises:
        ModelLoadError: it names none.

    """
    names = values.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    raise ModelLoadError(f"{path}: configuration lacks 'architectures', so the kind of model is unknown")


def folder_config(values: Mapping[str, Any], architecture: str, path: Path) -> ModelConfig:
    """Read and check the configuration of a folder of one of the architectures in the registry.

    Args:
        values: contents of config.json.
        architecture: name in the registry.
        path: the file, named in errors.

    Raises:
        ModelLoadError: keys are missing (all are named) or values contradict each other.

    """
    if "quantization_config" in values:
        raise ModelLoadError(
            f"{path}: quantised weights in a model folder are not built; use a GGUF file of this model"
        )
    fields = Fields(values, path, "configuration")
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    num_layers, stated = fields.count("num_hidden_layers"), fields.count("max_position_embeddings")
    fields.raise_missing()
    rope = _rope(fields, stated, _THETAS.get(architecture, 10000.0))
    gemma2 = architecture == "gemma2"
    bias = architecture in ("llama", "qwen3", "qwen3moe", "gemma2") and fields.flag("attention_bias")
    config = ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=fields.count("num_key_value_heads", heads),
        head_dim=fields.count("head_dim", _HEAD_DIMS.get(architecture, max(hidden // heads, 1))),
        vocab_size=fields.count("vocab_size"),
        rms_norm_eps=fields.number("rms_norm_eps", _EPSILONS.get(architecture, 1e-6)),
        max_position=rope.max_position(stated),
        tie_word_embeddings=fields.flag("tie_word_embeddings", gemma2),
        rope=rope,
        windows=_windows(fields, architecture, num_layers),
        attention_scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5 if gemma2 else None,
        attention_soft_cap=_soft_cap(fields, "attn_logit_softcapping", 50.0) if gemma2 else None,
        logit_soft_cap=_soft_cap(fields, "final_logit_softcapping", 30.0) if gemma2 else None,
        embedding_scale=hidden**0.5 if gemma2 else 1.0,
        activation=_activation(fields, gemma2),
        qkv_bias=architecture == "qwen2" or bias,
        out_bias=bias,
        mlp_bias=architecture == "llama" and fields.flag("mlp_bias"),
        qk_norm=architecture in ("qwen3", "qwen3moe"),
        experts=_experts(fields, architecture),
        dense_layers=_dense_layers(fields, num_layers) if architecture == "qwen3moe" else frozenset(),
    )
    fields.raise_missing()
    config.check(path)
    return config


def _experts(fields: Fields, architecture: str) -> ExpertsConfig | None:
    if architecture == "mixtral":
        return ExpertsConfig(
            count=fields.count("num_local_experts", 8),
            per_token=fields.count("num_experts_per_tok", 2),
            intermediate_size=fields.count("intermediate_size"),
            renormalise=True,
        )
    if architecture == "qwen3moe":
        count = "num_experts" if fields.states("num_experts") else "num_local_experts"  # of version 4, of version 5
        return ExpertsConfig(
            count=fields.count(count, 128),
            per_token=fields.count("num_experts_per_tok", 8),
            intermediate_size=fields.count("moe_intermediate_size", 768),
            renormalise=fields.flag("norm_topk_prob"),
        )
    return None


def _dense_layers(fields: Fields, num_layers: int) -> frozenset[int]:
    """Those that are listed, and of the others all but every `decoder_sparse_step`-th."""
    listed = fields.get("mlp_only_layers", [])
    if not isinstance(listed, list) or not all(isinstance(i, int) and 0 <= i < num_layers for i in listed):
        raise fields.wrong("mlp_only_layers", f"a list of layers, numbers below {num_layers}")
    step = fields.count("decoder_sparse_step", 1)
    return frozenset(listed) | {i for i in range(num_layers) if (i + 1) % step}


def _soft_cap(fields: Fields, name: str, default: float) -> float | None:
    return fields.optional_number(name) if fields.states(name) else default


def _activation(fields: Fields, gemma2: bool) -> Activation:
    name = "hidden_activation" if gemma2 else "hidden_act"
    activation = fields.get(name, "gelu_pytorch_tanh" if gemma2 else "silu")
    if activation not in _ACTIVATIONS:
        raise fields.wrong(name, "one of " + ", ".join(map(repr, _ACTIVATIONS)))
    return _ACTIVATIONS[activation]


def _windows(fields: Fields, architecture: str, num_layers: int) -> tuple[int | None, ...]:
    """Which layers have the window: as listed, else by the architecture's rule."""
    default = None if architecture == "mixtral" else _WINDOW
    window = fields.optional_count("sliding_window") if fields.states("sliding_window") else default
    qwen = architecture in ("qwen2", "qwen3")
    switched = qwen or architecture == "qwen3moe"
    if window is None or architecture == "llama" or (switched and not fields.flag("use_sliding_window")):
        return ()
    kinds = fields.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise fields.wrong("layer_types", f"a list of {num_layers} kinds")
        if unknown := set(kinds) - {"sliding_attention", "full_attention"}:
            raise fields.wrong("layer_types", f"'sliding_attention' and 'full_attention' only, not {sorted(unknown)}")
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if architecture == "gemma2":
        return tuple(None if i % 2 else window for i in range(num_layers))
    full = fields.get("max_window_layers", _QWEN_FULL_LAYERS) if qwen else 0
    if not isinstance(full, int) or full < 0:
        raise fields.wrong("max_window_layers", "a number of layers")
    return tuple(None if i < full else window for i in range(num_layers))


def _rope(fields: Fields, stated: int, default_theta: float) -> RopeConfig:
    """`rope_parameters` of transformers 5, or `rope_scaling` beside `rope_theta` of version 4."""
    values = fields.get("rope_parameters", fields.get("rope_scaling", {}))
    if not isinstance(values, dict) or any(isinstance(value, dict) for value in values.values()):
        raise fields.wrong("rope_parameters", "one set of parameters for all layers")
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise ModelLoadError(f"{fields.path}: rope type {kind!r} is not built (known: {', '.join(ROPE_KINDS)})")
    theta = fields.number("rope_theta", default_theta)
    rope = Fields(values, fields.path, "rope setting")
    share = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if share != 1.0:
        raise ModelLoadError(f"{fields.path}: partial_rotary_factor is {share}; only full rotation is built")
    original = fields.optional_count("original_max_position_embeddings") or rope.count(
        "original_max_position_embeddings", stated
    )
    if kind == "dynamic":
        original = stated
    factor = 1.0
    if kind == "yarn":
        factor = rope.number("factor", stated / original)
    elif kind != "default":
        factor = rope.number("factor")
    config = RopeConfig(
        kind,
        rope.number("rope_theta", theta),
        factor,
        original,
        low_freq_factor=rope.number("low_freq_factor", None if kind == "llama3" else 1.0),
        high_freq_factor=rope.number("high_freq_factor", None if kind == "llama3" else 4.0),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
        attention_factor=_attention_factor(rope, factor) if kind == "yarn" else 1.0,
    )
    rope.raise_missing()
    fields.raise_missing()
    if kind == "llama3" and not config.low_freq_factor < config.high_freq_factor:
        raise rope.wrong("high_freq_factor", f"more than low_freq_factor ({config.low_freq_factor})")
    return config


def _attention_factor(rope: Fields, factor: float) -> float:
    scales = rope.optional_number("mscale"), rope.optional_number("mscale_all_dim")
    return rope.number("attention_factor", yarn_attention_factor(factor, *scales))
