"""Draws on GPUs, without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run_module("sampling_cases", cache=tmp_path) == [
        "check_draws",
        "check_a_flat_row_longer_than_the_candidates",
        "check_top_p_counts_what_top_k_left",
        "check_ties_that_are_cut_keep_lower_ids",
        "check_rows_of_one_batch",
        "check_greedy",
        "check_shares_of_many_numbers",
    ]
