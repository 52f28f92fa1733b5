"""Types and places of all tensors of a device's steps, without a GPU and without a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_steps_stay_on_the_device_and_wait_for_nothing(tmp_path: Path) -> None:
    """Every launch is one that is compiled in CI, by the types of its pointers; captures transfer nothing."""
    assert run_module("device_flow_cases", cache=tmp_path, interpret=False) == [
        "steps in bfloat16",
        "steps in bfloat16 with graphs",
        "steps in float32",
        "steps in float32 with graphs",
        "experts",
        "4-bit products",
    ]
