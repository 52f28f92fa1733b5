from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu.norm import quantize_row, rms_norm, rms_norm_lanes, subtract_rounded
from sglang_lite.kernels.reference import norm as reference
from sglang_lite.kernels.reference.linear import quantize_rows

pytestmark = pytest.mark.native


@njit
def normed(x: np.ndarray, weight: np.ndarray, eps: np.float32, out: np.ndarray) -> None:
    rms_norm(x.ctypes.data, weight.ctypes.data, eps, x.shape[0] // 32, out.ctypes.data)


@njit
def quantized(x: np.ndarray, values: np.ndarray, scales: np.ndarray, sums: np.ndarray) -> None:
    quantize_row(x.ctypes.data, x.shape[0] // 32, values.ctypes.data, scales.ctypes.data, sums.ctypes.data)


@njit
def lost(x: np.ndarray, values: np.ndarray, scales: np.ndarray) -> None:
    subtract_rounded(x.ctypes.data, x.shape[0] // 32, values.ctypes.data, scales.ctypes.data)


def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, scales = np.empty(len(x), dtype=np.int8), np.empty(len(x) // 16, dtype=np.float32)
    sums = np.empty(len(x) // 32, dtype=np.float32)
    quantized(x, values, scales, sums)
    return values, scales, sums


def test_norm_agrees_with_the_reference() -> None:
    rng = np.random.default_rng(0)
    for size in (32, 576, 4096):
        x, weight = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
        out = np.empty_like(x)
        normed(x, weight, np.float32(1e-5), out)
        np.testing.assert_allclose(out, reference.rms_norm(x, weight, 1e-5), rtol=2e-6, atol=1e-6)


def test_rounding_agrees_with_the_reference_to_the_bit() -> None:
    x = np.random.default_rng(1).standard_normal(320).astype(np.float32) * np.float32(3)
    x[32:64] = 0.0
    x[64:96] = -1.5
    for got, expected in zip(quantize(x), quantize_rows(x[None]), strict=True):
        np.testing.assert_array_equal(got, expected[0])


def test_what_is_no_number_makes_its_group_no_number() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones(96, dtype=np.float32)
        x[40] = bad
        _, scales, sums = quantize(x)
        assert np.isnan(scales).tolist() == [False, False, True, False, False, False]
        assert np.isnan(sums).tolist() == [False, True, False]


def test_what_rounding_lost_is_less_than_half_a_step() -> None:
    x = np.random.default_rng(2).standard_normal(96).astype(np.float32)
    rest = x.copy()
    values, scales, _ = quantize(x)
    lost(rest, values, scales)
    steps = np.repeat(scales, 16)
    np.testing.assert_allclose(rest + values * steps, x, atol=1e-6)
    assert (np.abs(rest) <= 0.501 * steps).all()


@njit
def head_normed(x: np.ndarray, weight: np.ndarray, eps: np.float32) -> None:
    rms_norm_lanes(x.ctypes.data, weight.ctypes.data, eps, x.shape[0] // 16)


@pytest.mark.parametrize("size", [16, 48, 128])
def test_a_head_is_normed_in_place(size: int) -> None:
    rng = np.random.default_rng(size)
    x, weight = rng.standard_normal((2, size)).astype(np.float32)
    expected = reference.rms_norm(x, weight, 1e-5)
    head_normed(x, weight, np.float32(1e-5))
    np.testing.assert_allclose(x, expected, rtol=2e-6, atol=1e-6)
