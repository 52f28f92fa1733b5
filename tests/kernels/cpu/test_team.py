from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import njit

from sglang_lite.kernels.cpu.team import finish, next_units, phase_address, sync_bytes


@njit(nogil=True)
def work(
    sync: np.ndarray, thread: int, threads: int, units: int, phases: int, done: np.ndarray, order: np.ndarray
) -> None:
    """Mark each unit of each phase, and whether all of the phase before were marked by then."""
    for number in range(phases):
        phase = phase_address(sync.ctypes.data, number, threads)
        victim, count = 0, 0
        while True:
            first, last, victim = next_units(phase, thread, threads, units, victim)
            if first == last:
                break
            for unit in range(first, last):
                if number > 0:
                    order[number] += done[number - 1].sum() != units
                done[number, unit] += 1
            count += last - first
        finish(phase, count, units, 0)


def run(present: list[int], threads: int, units: int, phases: int = 30) -> np.ndarray:
    sync = np.zeros(sync_bytes(phases, threads), dtype=np.uint8)
    done, order = np.zeros((phases, units), dtype=np.int64), np.zeros(phases, dtype=np.int64)
    running = [
        threading.Thread(target=work, args=(sync, thread, threads, units, phases, done, order)) for thread in present
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not order.any(), "a unit began before the phase before it was done"
    return done


@pytest.mark.parametrize("units", [0, 1, 2, 3, 15, 100])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_every_unit_is_done_once_and_phases_follow_each_other(threads: int, units: int) -> None:
    assert (run(list(range(threads)), threads, units) == 1).all()


@pytest.mark.parametrize("present", [[0], [5], [1, 2]])
def test_threads_that_never_come_are_not_waited_for(present: list[int]) -> None:
    assert (run(present, 8, 50) == 1).all()


@njit(nogil=True)
def report(sync: np.ndarray, done: int, units: int) -> None:
    finish(sync.ctypes.data, done, units, 0)


def test_nobody_goes_on_while_a_claimed_unit_is_not_done() -> None:
    sync = np.zeros(64, dtype=np.uint8)
    report(np.zeros(64, dtype=np.uint8), 5, 5)
    waiting = threading.Thread(target=report, args=(sync, 3, 5))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    report(sync, 2, 5)
    waiting.join()
