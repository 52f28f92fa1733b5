from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.kernels.cpu.linear import BYTE
from sglang_lite.kernels.cpu.linear_q8_0 import pack_q8_0
from tests.kernels.cpu.quantized_case import (
    Activations,
    check_linear,
    check_rows_are_independent,
    run_linear,
    stored_weight,
)

pytestmark = pytest.mark.native


def test_agrees_with_the_reference_on_the_same_int8_input() -> None:
    check_linear("Q8_0", BYTE, pack_q8_0)


def test_a_row_is_the_same_to_the_bit_whatever_runs_beside_it() -> None:
    check_rows_are_independent("Q8_0", BYTE, pack_q8_0)


def test_the_smallest_byte_keeps_its_value() -> None:
    """-128 has no positive twin among int8, and the product goes over sizes and signs."""
    raw, weight = stored_weight("Q8_0", 16, 64)
    raw.reshape(16, 2, 34)[..., 2:] = 128
    weight = -128.0 * np.ascontiguousarray(raw.reshape(16, 2, 34)[..., :2]).view(np.float16).astype(np.float32)
    act = Activations(3, 64)
    act.values[:] = np.where(act.values < 0, -127, 127)
    expected = act.times(np.repeat(weight[..., 0], 32, axis=1))
    np.testing.assert_allclose(run_linear(BYTE, pack_q8_0(raw), act, 16), expected, rtol=1e-5, atol=1e-4)
