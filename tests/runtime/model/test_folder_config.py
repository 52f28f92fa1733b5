"""config.json in both forms of transformers, with what it leaves out, and what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.config import ExpertsConfig, ModelConfig
from sglang_lite.runtime.model.folder_config import folder_architecture, folder_config, read_config_json
from sglang_lite.runtime.model.rope import RopeConfig

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "vocab_size": 100,
}
PATH = Path("model/config.json")


def config(architecture: str = "llama", **changes: Any) -> ModelConfig:
    return folder_config(BASE | changes, architecture, PATH)


def test_what_a_file_leaves_out_is_what_transformers_assumes() -> None:
    plain = config()
    assert (plain.head_dim, plain.rms_norm_eps, plain.tie_word_embeddings) == (16, 1e-6, False)
    assert (plain.rope.theta, plain.activation) == (10000.0, "silu")
    assert config("qwen3").head_dim == 128
    gemma = config("gemma2")
    assert (gemma.head_dim, gemma.tie_word_embeddings, gemma.attention_scale) == (256, True, 1 / 16)
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap) == (50.0, 30.0)
    assert gemma.windows == (4096, None, 4096, None)
    assert config("mistral").windows == (4096,) * 4


def test_experts_are_what_transformers_assumes_where_a_file_is_silent() -> None:
    mixtral = config("mixtral")
    assert mixtral.experts == ExpertsConfig(count=8, per_token=2, intermediate_size=96, renormalise=True)
    assert (mixtral.rms_norm_eps, mixtral.rope.theta, mixtral.windows) == (1e-5, 1e6, ())
    assert config("mixtral", sliding_window=7).windows == (7,) * 4
    qwen = config("qwen3moe", max_window_layers=4)
    assert qwen.experts == ExpertsConfig(count=128, per_token=8, intermediate_size=768, renormalise=False)
    assert (qwen.qk_norm, qwen.head_dim, qwen.windows, qwen.dense_layers) == (True, 16, (), frozenset())
    assert config("qwen3moe", use_sliding_window=True, sliding_window=7).windows == (7,) * 4


def test_dense_layers_are_listed_or_left_by_the_step() -> None:
    read = config("qwen3moe", mlp_only_layers=[3], decoder_sparse_step=2)
    assert read.dense_layers == {0, 2, 3}
    assert [read.experts_of(i) is None for i in range(4)] == [True, False, True, True]


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("mixtral", {"num_local_experts": 2, "num_experts_per_tok": 3}, "a token takes 3 experts, and a layer has 2"),
        ("mixtral", {"num_local_experts": 0}, "'num_local_experts' is 0"),
        ("qwen3moe", {"num_experts": "many"}, "'num_experts' is 'many'"),
        ("qwen3moe", {"moe_intermediate_size": -1}, "'moe_intermediate_size' is -1"),
        ("qwen3moe", {"norm_topk_prob": 1}, "'norm_topk_prob' is 1, expected true or false"),
        ("qwen3moe", {"mlp_only_layers": [4]}, r"'mlp_only_layers' is \[4\], expected a list of layers, numbers below 4"),
        ("qwen3moe", {"decoder_sparse_step": 0}, "'decoder_sparse_step' is 0"),
    ],
)  # fmt: skip
def test_wrong_numbers_of_experts_are_named(architecture: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"model/config\.json: .*{message}"):
        config(architecture, **changes)


def test_null_is_a_statement_where_leaving_out_is_none() -> None:
    assert config("mistral", sliding_window=None).windows == ()
    assert config("gemma2", attn_logit_softcapping=None).attention_soft_cap is None
    assert config("llama", head_dim=None, num_key_value_heads=None).num_kv_heads == 4


def test_qwen_has_windows_only_where_they_are_switched_on() -> None:
    window = {"sliding_window": 32, "max_window_layers": 3}
    for name in ("qwen2", "qwen3"):
        assert config(name, **window, use_sliding_window=False).windows == ()
        assert config(name, **window, use_sliding_window=True).windows == (None, None, None, 32)
    assert config("qwen2", **window | {"max_window_layers": 0}, use_sliding_window=True).windows == (32,) * 4


def test_listed_layer_types_win() -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    assert config("gemma2", layer_types=kinds, sliding_window=5).windows == (None, 5, None, None)


@pytest.mark.parametrize(
    "form",
    [
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 5000.0},
        {"rope_scaling": {"rope_type": "linear", "factor": 4}, "rope_theta": 5000},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}},
    ],
    ids=["of 2023", "version 4", "version 5"],
)
def test_rope_settings_come_in_three_forms(form: dict[str, Any]) -> None:
    read = config(**form)
    assert (read.rope.kind, read.rope.factor, read.rope.theta) == ("linear", 4.0, 5000.0)
    assert read.max_position == 2048


def test_yarn_takes_its_factor_from_the_two_contexts_if_it_has_none() -> None:
    rope = config(rope_scaling={"type": "yarn", "original_max_position_embeddings": 128}).rope
    assert (rope.factor, rope.original_max) == (4.0, 128)


def test_no_rope_settings_are_plain_rotation() -> None:
    for nothing in ({"rope_scaling": None}, {"rope_parameters": {}}, {"rope_scaling": {"type": "default"}}):
        assert config(**nothing).rope == RopeConfig(original_max=512)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None, "num_hidden_layers": None}, "configuration lacks 'hidden_size', 'num_hidden_layers'"),
        ({"intermediate_size": None}, "configuration lacks 'intermediate_size'"),
        ({"hidden_size": "64"}, "configuration 'hidden_size' is '64'"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3"),
        ({"hidden_act": "relu"}, "'hidden_act' is 'relu', expected one of 'silu'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, r"rope type 'longrope' is not built \(known: default, linear, dynamic"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope setting lacks 'low_freq_factor', 'high_freq_factor'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope setting lacks 'factor'"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "one set of parameters for all layers"),
        ({"partial_rotary_factor": 0.5}, "only full rotation is built"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised weights in a model folder are not built"),
        ({"tie_word_embeddings": "yes"}, "expected true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_error_that_names_file_and_setting(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"model/config\.json: .*{message}"):
        config(**changes)


@pytest.mark.parametrize(
    "changes",
    [{"layer_types": ["full_attention"]}, {"layer_types": ["chunked_attention"] * 4}, {"max_window_layers": "x"}],
)
def test_wrong_lists_of_layers_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadError, match=f"configuration '{next(iter(changes))}' is"):
        config("qwen2", use_sliding_window=True, **changes)


def test_config_json_must_be_there_and_an_object(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no config\.json"):
        read_config_json(tmp_path)
    for content in ("", "{", "[1]", "7"):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ModelLoadError, match=r"config\.json: "):
            read_config_json(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    assert read_config_json(tmp_path) == BASE


def test_the_kind_of_model_must_be_stated() -> None:
    assert folder_architecture({"architectures": ["LlamaForCausalLM"]}, PATH) == "LlamaForCausalLM"
    for values in ({}, {"architectures": []}, {"architectures": None}, {"architectures": "Llama"}):
        with pytest.raises(ModelLoadError, match="configuration lacks 'architectures'"):
            folder_architecture(values, PATH)
