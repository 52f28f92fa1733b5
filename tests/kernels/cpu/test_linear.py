from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu.linear import FLOAT, PACKERS, linear_address, unpack_row
from sglang_lite.kernels.cpu.linear_f32 import pack_f32
from tests.kernels.cpu.quantized_case import stored_weight

pytestmark = pytest.mark.native


@njit
def unpack(kind: int, packed: np.ndarray, groups: int, row: int, out: np.ndarray) -> None:
    unpack_row(kind, packed.ctypes.data, groups, row, out.ctypes.data)


def unpack_all(kind: int, packed: np.ndarray, n: int, k: int) -> np.ndarray:
    out = np.empty((n, k), dtype=np.float32)
    for row in range(n):
        unpack(kind, packed, k // 32, row, out[row])
    return out


@pytest.mark.parametrize("name", PACKERS)
def test_packed_rows_hold_the_values_of_the_file(name: str) -> None:
    raw, weight = stored_weight(name, 21, 512)
    kind, pack = PACKERS[name]
    np.testing.assert_allclose(unpack_all(kind, pack(raw), 21, 512), weight, rtol=1e-6, atol=1e-8)


def test_packed_floats_are_the_floats() -> None:
    weight = np.random.default_rng(0).standard_normal((21, 64)).astype(np.float32)
    assert np.array_equal(unpack_all(FLOAT, pack_f32(weight), 21, 64), weight)


def test_each_storage_is_compiled_once() -> None:
    kind, _ = PACKERS["Q8_0"]
    assert linear_address(kind) == linear_address(kind)
    assert ctypes.c_void_p(linear_address(kind)).value
