from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu import simd_rows

pytestmark = pytest.mark.native

_sum_of_squares: Any = simd_rows.sum_of_squares


@njit
def squares(x: np.ndarray) -> float:
    return _sum_of_squares(x.ctypes.data, x.shape[0] // 16)


def test_the_sum_of_squares_is_right_and_passes_nan() -> None:
    x = np.random.default_rng(0).standard_normal(576).astype(np.float32)
    assert squares(x) == pytest.approx(float((x.astype(np.float64) ** 2).sum()), rel=1e-6)
    assert squares(x[:0]) == 0
    x[17] = np.nan
    assert np.isnan(squares(x))
