"""The gate of the MLP for GPUs, without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run_module("silu_cases", cache=tmp_path) == [
        "check_shapes",
        "check_extremes",
    ]
