from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numba import carray, cfunc, types

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.threads import KernelThreads, configure_threads

_fetch_add: Any = simd.fetch_add


@cfunc(types.void(types.CPointer(types.int64)))
def claim_all(data: Any) -> None:
    """Claim numbers from a common counter until 1,000 are gone; mark each."""
    numbers = carray(data, (1002,))
    _fetch_add(numbers.ctypes.data + 8, 1)
    while True:
        claimed = _fetch_add(numbers.ctypes.data, 1)
        if claimed >= 1000:
            return
        numbers[2 + claimed] += 1


def test_a_team_takes_every_piece_of_work_once() -> None:
    threads = KernelThreads(3)
    if threads.count > 1:
        data = np.zeros(1002, dtype=np.int64)
        threads.run(claim_all.address, data)
        assert data[1] == 3
        assert (data[2:] == 1).all()


def test_torchs_own_openmp_is_reached_on_linux() -> None:
    """Elsewhere a runtime without GNU's entry point leaves one thread."""
    assert KernelThreads(2).count in ({2} if sys.platform.startswith("linux") else {1, 2})


def test_a_team_of_one_runs_the_work_itself() -> None:
    data = np.zeros(1002, dtype=np.int64)
    KernelThreads(1).run(claim_all.address, data)
    assert data[1] == 1
    assert (data[2:] == 1).all()


def test_torch_gets_as_many_threads_as_the_kernels() -> None:
    before = torch.get_num_threads()
    try:
        assert configure_threads(1).count == 1
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
