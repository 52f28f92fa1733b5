"""4-bit matrices on GPUs, without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run_module("linear_q4_cases", cache=tmp_path) == [
        "check_the_definition_is_the_format",
        "check_unpacking_gives_the_very_numbers",
        "check_products",
        "check_what_is_behind_the_inputs_is_not_read",
        "check_tiles_give_equal_bits",
    ]
