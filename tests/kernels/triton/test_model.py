"""The kernels for GPUs put together to a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_a_model_of_kernels_computes_what_torch_computes(tmp_path: Path) -> None:
    """Norms, rotation, gates, 4-bit products and attention with the shapes and strides that a model gives them."""
    lines = run_module("model_cases", str(tmp_path), cache=tmp_path)
    assert lines == [
        "llama with 4-bit matrices in float32",
        "llama with 4-bit matrices in bfloat16",
        "qwen3 in float32",
        "gemma2 in float32",
    ]
