"""The kernels as the runner for devices calls them, without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_the_kernels_draw_what_torch_draws(tmp_path: Path) -> None:
    assert run_module("device_sampler_cases", cache=tmp_path) == [
        "check_a_batch_of_every_way_to_sample",
        "check_rows_of_no_numbers",
    ]
