from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu.rope import pair_order, rotate, scatter_pairs
from sglang_lite.kernels.reference import rope as reference

pytestmark = pytest.mark.native


@njit
def turned(pairs: np.ndarray, cos: np.ndarray, sin: np.ndarray, out: np.ndarray, stride: int) -> None:
    depth = pairs.shape[0]
    for block in range(depth // 16):
        at = pairs.ctypes.data + 64 * block
        rotate(at, cos.ctypes.data, sin.ctypes.data, block)
        scatter_pairs(at, out.ctypes.data, stride, depth, block)


@pytest.mark.parametrize("depth", [32, 64, 96, 128])
@pytest.mark.parametrize("apart", [1, 16])
def test_agrees_with_the_reference_side_by_side_and_in_columns_of_a_page(depth: int, apart: int) -> None:
    rng = np.random.default_rng(0)
    head = rng.standard_normal(depth).astype(np.float32)
    angles = rng.uniform(0, 6, depth // 2)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    out = np.full((depth, apart), np.nan, dtype=np.float32)
    turned(head[pair_order(depth)], cos, sin, out, 4 * apart)
    expected = reference.rotate(head[None, None], cos[None], sin[None])[0, 0]
    np.testing.assert_allclose(out[:, 0], expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(out[:, 1:]).all()
