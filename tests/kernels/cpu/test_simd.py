from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu import simd

_exp_in_place: Any = simd.exp_in_place
_max_of: Any = simd.max_of


@njit
def exponentials(values: np.ndarray, shift: np.float32) -> float:
    return _exp_in_place(values.ctypes.data, values.shape[0] // 16, shift)


@njit
def largest(values: np.ndarray) -> float:
    return _max_of(values.ctypes.data, values.shape[0] // 16)


def test_exp_is_right_to_the_last_bits_and_sums_up() -> None:
    x = np.linspace(-87.0, 0.0, 4096, dtype=np.float32)
    got = x.copy()
    total = exponentials(got, np.float32(0.0))
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=3e-7)
    assert total == pytest.approx(np.exp(x.astype(np.float64)).sum(), rel=1e-6)


def test_exp_of_hidden_keys_is_zero_and_nan_stays() -> None:
    x = np.array([-np.inf, -1e30, -88.0, np.nan] * 4, dtype=np.float32)
    exponentials(x, np.float32(0.0))
    assert (x.reshape(4, 4)[:, :3] == 0).all()
    assert np.isnan(x.reshape(4, 4)[:, 3]).all()


def test_max_ignores_nan_and_is_minus_infinity_for_nothing() -> None:
    values = np.full(32, -5.0, dtype=np.float32)
    values[3], values[30] = np.nan, -2.5
    assert largest(values) == -2.5
    assert largest(values[:0]) == -np.inf
