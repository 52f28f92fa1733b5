from __future__ import annotations

import pytest

from sglang_lite.kernels.cpu.linear import NIBBLE_WIDE
from sglang_lite.kernels.cpu.linear_q4_k import pack_q4_k
from tests.kernels.cpu.quantized_case import check_linear, check_rows_are_independent

pytestmark = pytest.mark.native


def test_agrees_with_the_reference_on_the_same_int8_input() -> None:
    check_linear("Q4_K", NIBBLE_WIDE, pack_q4_k)


def test_a_row_is_the_same_to_the_bit_whatever_runs_beside_it() -> None:
    check_rows_are_independent("Q4_K", NIBBLE_WIDE, pack_q4_k)
