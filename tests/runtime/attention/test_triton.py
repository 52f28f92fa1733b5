"""The attention backend of the GPU's kernels without a GPU: in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module


@pytest.mark.triton
def test_it_is_plain_torch_in_batches_graphs_and_a_model(tmp_path: Path) -> None:
    told = run_module("attention_backend_cases", cache=tmp_path)
    assert told == ["parity", "batch_mates", "dependent_rows", "graphs", "model"]
