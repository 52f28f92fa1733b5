from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.attention.base import LayerAttention
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.rope import RopeConfig

CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=10,
    rms_norm_eps=1e-5,
    max_position=64,
    tie_word_embeddings=True,
)


def test_a_layer_without_settings_attends_plainly() -> None:
    assert CONFIG.attention_of(1) == LayerAttention()


def test_each_layer_has_its_own_window() -> None:
    config = replace(CONFIG, windows=(7, None), attention_scale=0.5, attention_soft_cap=30.0)
    assert config.attention_of(0) == LayerAttention(0.5, 7, 30.0)
    assert config.attention_of(1) == LayerAttention(0.5, None, 30.0)


def test_what_goes_beyond_a_plain_llama_is_named() -> None:
    assert CONFIG.beyond_plain == ()
    assert replace(CONFIG, windows=(None, None)).beyond_plain == ()
    assert replace(CONFIG, windows=(None, 4)).beyond_plain == ("sliding window",)
    changed = replace(CONFIG, mlp_bias=True, qk_norm=True, activation="gelu_tanh", attention_scale=1.0)
    assert changed.beyond_plain == ("attention scale", "gelu_tanh activation", "biases", "query and key norms")
    caps = replace(CONFIG, attention_soft_cap=1.0, logit_soft_cap=2.0, embedding_scale=3.0)
    assert caps.beyond_plain == ("attention soft cap", "logit soft cap", "embedding scale")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(CONFIG, num_kv_heads=3), "4 query heads cannot share 3 kv heads"),
        (replace(CONFIG, head_dim=7), "head_dim is 7"),
        (
            replace(CONFIG, head_dim=2, rope=RopeConfig("dynamic", factor=2.0, original_max=64)),
            "head_dim is 2; dynamic",
        ),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(changed: ModelConfig, message: str) -> None:
    CONFIG.check(Path("config.json"))
    with pytest.raises(ModelLoadError, match=f"config.json: {message}"):
        changed.check(Path("config.json"))
