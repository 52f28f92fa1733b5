"""Frequencies against transformers' own formulas, tables against the definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from sglang_lite.runtime.model.rope import RopeConfig, RopeKind, RotaryEmbedding, yarn_attention_factor

DIM, THETA, ORIGINAL = 64, 500000.0, 256
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def theirs(kind: str, factor: float, length: int | None = None, **more: Any) -> tuple[torch.Tensor, float]:
    scaled = {"factor": factor, "original_max_position_embeddings": ORIGINAL} | more
    if kind in ("linear", "dynamic"):
        del scaled["original_max_position_embeddings"]
    parameters = {"rope_type": kind, "rope_theta": THETA} | scaled
    stated = ORIGINAL if kind == "dynamic" else 1024
    config = LlamaConfig(head_dim=DIM, max_position_embeddings=stated, rope_parameters=parameters)
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)


@pytest.mark.parametrize("factor", [1.5, 4.0, 32.0])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("linear", {}),
        ("llama3", LLAMA3),
        ("llama3", {"low_freq_factor": 2.0, "high_freq_factor": 16.0}),
        ("yarn", {}),
        ("yarn", {"beta_fast": 16.0, "beta_slow": 2.0}),
        ("yarn", {"truncate": False}),
    ],
)
def test_frequencies_are_those_of_transformers(kind: RopeKind, more: dict[str, Any], factor: float) -> None:
    rope = RopeConfig(kind, THETA, factor, ORIGINAL, **more)
    expected, _ = theirs(kind, factor, **more)
    torch.testing.assert_close(rope.frequencies(DIM, torch.arange(1)).float(), expected, atol=0, rtol=2e-6)


@pytest.mark.parametrize("position", [0, 100, 255, 256, 700, 4000])
def test_a_dynamic_token_turns_as_the_last_one_of_its_prefix(position: int) -> None:
    rope = RopeConfig("dynamic", THETA, 4.0, ORIGINAL)
    expected, _ = theirs("dynamic", 4.0, position + 1)
    got = rope.frequencies(DIM, torch.tensor([3, position]))[1]
    torch.testing.assert_close(got.float(), expected, atol=0, rtol=2e-6)


@pytest.mark.parametrize("more", [{}, {"mscale": 1.0, "mscale_all_dim": 0.7}, {"mscale": 2.0}])
def test_the_attention_factor_of_yarn_is_that_of_transformers(more: dict[str, float]) -> None:
    assert yarn_attention_factor(8.0, **more) == pytest.approx(theirs("yarn", 8.0, **more)[1])
    assert yarn_attention_factor(1.0) == 1.0


def test_the_context_grows_where_the_file_states_the_one_before_scaling() -> None:
    assert RopeConfig("linear", factor=4.0).max_position(2048) == 8192
    assert RopeConfig("dynamic", factor=2.0, original_max=2048).max_position(2048) == 4096
    assert RopeConfig("yarn", factor=4.0, original_max=32768).max_position(32768) == 131072
    assert RopeConfig("yarn", factor=4.0, original_max=32768).max_position(131072) == 131072
    assert RopeConfig("llama3", factor=8.0, original_max=8192).max_position(131072) == 131072


def test_tables_grow_without_changing_what_they_had() -> None:
    """A row that was computed for a short sequence is the row of a long one, to the bit."""
    rope = RopeConfig("yarn", 10000.0, 4.0, 512, attention_factor=1.5)
    grown, whole = RotaryEmbedding(rope, 16), RotaryEmbedding(rope, 16)
    first = grown.tables(1)[0].clone()
    assert torch.equal(grown.tables(3000)[0][: len(first)], first)
    for ours, theirs in zip(grown.tables(3000), whole.tables(5000), strict=True):
        assert torch.equal(ours[:3000], theirs[:3000])
    cos, sin = grown.tables(3000)
    angle = 2999 * float(rope.frequencies(16, torch.arange(1))[3])
    assert (float(cos[2999, 3]), float(sin[2999, 3])) == pytest.approx((1.5 * math.cos(angle), 1.5 * math.sin(angle)))


def test_rotation_turns_pairs_of_the_two_halves() -> None:
    rotary = RotaryEmbedding(RopeConfig(theta=100.0), 4)
    x = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])
    cos, sin = rotary.angles(torch.tensor([5]), 6)
    slow = 5 * 100.0**-0.5
    expected = torch.tensor([[[math.cos(5), -math.sin(slow), math.sin(5), math.cos(slow)]]])
    torch.testing.assert_close(RotaryEmbedding.rotate(x, cos, sin), expected)
