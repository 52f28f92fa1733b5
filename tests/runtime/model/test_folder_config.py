"""config.json in both forms of transformers, with what it leaves out, and what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.config import ModelConfig
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
