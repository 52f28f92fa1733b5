from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.kernels.cpu.linear import FLOAT
from sglang_lite.kernels.cpu.linear_f32 import pack_f32
from tests.kernels.cpu.quantized_case import Activations, run_linear

pytestmark = pytest.mark.native

WEIGHT = np.random.default_rng(5).standard_normal((40, 96)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 7, 13])
def test_agrees_with_the_reference(rows: int) -> None:
    act = Activations(rows, 96)
    expected = act.x.astype(np.float64) @ WEIGHT.T
    np.testing.assert_allclose(run_linear(FLOAT, pack_f32(WEIGHT), act, 40)[:, :40], expected, atol=2e-5, rtol=1e-5)
    start = np.ones((rows, 48), dtype=np.float32)
    added = run_linear(FLOAT, pack_f32(WEIGHT), act, 40, 1, 2, start)
    np.testing.assert_allclose(added[:, 16:32], expected[:, 16:32] + 1, atol=2e-5, rtol=1e-5)
    assert (added[:, :16] == 1).all()


def test_a_row_is_the_same_to_the_bit_whatever_runs_beside_it() -> None:
    act = Activations(13, 96)
    together = run_linear(FLOAT, pack_f32(WEIGHT), act, 40)
    for row in (0, 7, 12):
        alone = Activations(1, 96)
        alone.x = act.x[row : row + 1]
        assert np.array_equal(run_linear(FLOAT, pack_f32(WEIGHT), alone, 40)[0], together[row])
