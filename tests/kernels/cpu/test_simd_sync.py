from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sglang_lite.kernels.cpu import simd_sync
from sglang_lite.kernels.cpu.step_team import yield_address

_add_released: Any = simd_sync.add_released
_load_acquired: Any = simd_sync.load_acquired
_call_plain: Any = simd_sync.call_plain
_relax: Any = simd_sync.relax


@njit
def count(counter: np.ndarray, amount: int) -> tuple[int, int]:
    _relax()
    return _add_released(counter.ctypes.data, amount), _load_acquired(counter.ctypes.data)


@njit
def call(function: int) -> int:
    return _call_plain(function)


def test_an_addition_gives_the_old_value_and_a_load_the_new_one() -> None:
    counter = np.array([7], dtype=np.int64)
    assert count(counter, 5) == (7, 12)


def test_the_systems_yield_is_called_through_its_address() -> None:
    address = yield_address()
    assert address == 0 or call(address) == 0
