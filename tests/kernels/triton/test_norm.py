"""The norms for GPUs, without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run_module("norm_cases", cache=tmp_path) == [
        "check_shapes",
        "check_strided_heads",
        "check_adding_is_two_steps_in_one",
        "check_extremes",
        "check_rows_do_not_depend_on_each_other",
    ]
