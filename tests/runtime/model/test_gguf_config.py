"""GGUF metadata to a configuration, by architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.config import ExpertsConfig, ModelConfig
from sglang_lite.runtime.model.gguf_config import gguf_architecture, gguf_config
from sglang_lite.runtime.model.rope import RopeConfig, yarn_attention_factor

BASE: dict[str, Any] = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "vocab_size": 100,
}
PATH = Path("model.gguf")


def config(architecture: str = "llama", has_head: bool = True, **changes: Any) -> ModelConfig:
    values = {f"{architecture}.{key}": value for key, value in (BASE | changes).items()}
    return gguf_config({"general.architecture": architecture} | values, has_head, PATH)


def test_what_a_file_leaves_out() -> None:
    plain = config(has_head=False)
    assert (plain.num_kv_heads, plain.head_dim, plain.tie_word_embeddings) == (4, 16, True)
    assert plain.rope == RopeConfig()
    assert plain.windows == ()
    assert plain.attention_scale is None


def test_architectures_differ_as_they_should() -> None:
    assert config("qwen2").qkv_bias
    assert config("qwen3").qk_norm
    gemma = config("gemma2")
    assert (gemma.activation, gemma.embedding_scale) == ("gelu_tanh", 8.0)
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap) == (50.0, 30.0)
    assert gemma.windows == (4096, None, 4096, None)


def test_the_largest_gemma2_scales_by_its_width_over_its_heads() -> None:
    """No key holds it; its number of layers tells it."""
    assert config("gemma2", block_count=46, **{"attention.key_length": 32}).attention_scale == 0.25
    assert config("gemma2", block_count=42, **{"attention.key_length": 32}).attention_scale is None


def test_rope_scaling_in_all_forms() -> None:
    assert config(**{"rope.scale_linear": 2.0}).rope == RopeConfig("linear", factor=2.0)
    assert config(**{"rope.scaling.type": "none", "rope.freq_base": 7.0}).rope == RopeConfig(theta=7.0)
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 512}
    read = config(**yarn, **{"rope.scaling.attn_factor": 0.5})
    assert read.rope == RopeConfig("yarn", 10000.0, 4.0, 512, attention_factor=0.5 * yarn_attention_factor(4.0))
    assert read.max_position == 2048
    with pytest.raises(ModelLoadError, match=r"lacks 'llama\.rope\.scaling\.factor'"):
        config(**{"rope.scaling.type": "linear"})


EXPERTS = {"expert_count": 8, "expert_used_count": 2}


def test_a_llama_with_experts_is_a_mixtral() -> None:
    """That is what its files call themselves; their keys are llama's."""
    read = config(**EXPERTS)
    assert (read.architecture, read.hidden_size) == ("mixtral", 64)
    assert read.experts == ExpertsConfig(count=8, per_token=2, intermediate_size=96, renormalise=True)
    assert config(expert_count=0, expert_used_count=0).architecture == "llama"


def test_experts_of_qwen3_have_a_width_of_their_own() -> None:
    read = config("qwen3moe", **EXPERTS, expert_feed_forward_length=32, expert_gating_func=1, expert_weights_scale=0.0)
    assert read.experts == ExpertsConfig(count=8, per_token=2, intermediate_size=32, renormalise=True)
    assert read.qk_norm
    unequal = config("qwen3moe", **EXPERTS, expert_weights_norm=False).experts
    assert unequal is not None
    assert not unequal.renormalise


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": None}, r"lacks 'qwen3moe\.expert_count'"),
        ({"expert_gating_func": 2}, r"'qwen3moe\.expert_gating_func' is 2, expected 1: nothing else is built"),
        ({"expert_shared_count": 1}, r"'qwen3moe\.expert_shared_count' is 1, expected 0"),
        ({"expert_weights_scale": 2.5}, r"expert_weights_scale' is 2\.5, expected 1\.0"),
        ({"expert_used_count": 9}, "a token takes 9 experts, and a layer has 8"),
    ],
)
def test_experts_that_are_not_built_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"model\.gguf: .*{message}"):
        config("qwen3moe", **(EXPERTS | changes))


def test_widths_that_are_not_built_are_refused() -> None:
    for key in ("rope.dimension_count", "attention.value_length"):
        with pytest.raises(ModelLoadError, match=f"'llama.{key}' is 8, expected head_dim 16: only full rotation"):
            config(**{"attention.key_length": 16, key: 8})


def test_the_kind_of_model_must_be_stated() -> None:
    with pytest.raises(ModelLoadError, match=r"model\.gguf: metadata lacks 'general\.architecture'"):
        gguf_architecture({}, PATH)
