from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from sglang_lite.kernels.cpu.simd_rows import multiply_rows, round_rows
from sglang_lite.kernels.reference.int8_heads import round_heads

pytestmark = pytest.mark.native


@njit
def rounded(x: np.ndarray) -> float:
    return round_rows(x.ctypes.data, x.size // 16)


@njit
def multiplied(x: np.ndarray, other: np.ndarray) -> None:
    multiply_rows(x.ctypes.data, other.ctypes.data, x.size // 16)


@pytest.mark.parametrize("case", ["random", "zeros", "ties", "nan", "infinity", "tiny"])
def test_a_head_is_rounded_as_the_reference_rounds_it(case: str) -> None:
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    if case == "zeros":
        x[:] = 0
    elif case == "ties":
        x[:] = np.arange(-32, 32) * 0.5
        x[0] = 127.0
    elif case in ("nan", "infinity"):
        x[37] = np.nan if case == "nan" else -np.inf
    elif case == "tiny":
        x *= np.float32(1e-30)
    whole, worth = round_heads(torch.from_numpy(x.copy())[None, None])
    got = rounded(x)
    assert np.array_equal(x, whole[0, 0].numpy().astype(np.float32))
    assert np.float32(got) == worth.item() or (np.isnan(got) and case in ("nan", "infinity"))
    assert np.isnan(worth.item()) == (case in ("nan", "infinity"))


def test_rounding_is_off_by_half_a_step_at_most() -> None:
    x = torch.randn(5, 3, 64, generator=torch.Generator().manual_seed(2))
    whole, worth = round_heads(x)
    assert ((whole * worth[..., None] - x).abs() <= 0.5001 * worth[..., None]).all()
    assert (whole.abs().amax(-1) == 127).all()


def test_rows_are_multiplied_number_by_number() -> None:
    x, other = (np.random.default_rng(seed).standard_normal(48).astype(np.float32) for seed in (3, 4))
    expected = x * other
    multiplied(x, other)
    assert np.array_equal(x, expected)
