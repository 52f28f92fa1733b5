from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from numba import carray, cfunc, types

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.step_team import StepTeam
from sglang_lite.kernels.cpu.team import (
    FIELDS,
    GIVE_WAY,
    LENGTH,
    NEXT_THREAD,
    SYNC,
    THREADS,
    finish,
    next_units,
    phase_address,
)  # fmt: skip

_fetch_add: Any = simd.fetch_add
UNITS, PHASES, OUT = 40, 25, FIELDS


@cfunc(types.void(types.CPointer(types.int64)))
def count_units(data: Any) -> None:
    """Add 1 to each unit's number in every phase; who comes when changes nothing."""
    s = carray(data, (FIELDS + 1,))
    thread = _fetch_add(s.ctypes.data + 8 * NEXT_THREAD, 1)
    if thread >= s[THREADS]:
        return
    for number in range(PHASES):
        phase = phase_address(s[SYNC], number, s[THREADS])
        victim, done = 0, 0
        while True:
            first, last, victim = next_units(phase, thread, s[THREADS], UNITS, victim)
            if first == last:
                break
            for unit in range(first, last):
                _fetch_add(s[OUT] + 8 * unit, 1)
            done += last - first
        finish(phase, done, UNITS, s[GIVE_WAY])


def run(team: StepTeam, threads: int | None = None) -> np.ndarray:
    counts = np.zeros(UNITS, dtype=np.int64)
    block = np.zeros(FIELDS + 1, dtype=np.int64)
    block[LENGTH], block[OUT] = len(block), counts.ctypes.data
    team.run(count_units.address, block, PHASES, threads)
    return counts


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_step_is_complete_when_the_call_returns(count: int) -> None:
    team = StepTeam(count)
    for _ in range(50):
        assert (run(team) == PHASES).all()


def test_a_step_may_take_fewer_threads_than_the_team_has() -> None:
    team = StepTeam(4)
    for threads in (1, 3, 4, 9):
        assert (run(team, threads) == PHASES).all()


def test_steps_of_several_callers_do_not_disturb_each_other() -> None:
    team, results = StepTeam(3), []

    def work() -> None:
        results.extend(run(team) for _ in range(30))

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 120
    assert all((counts == PHASES).all() for counts in results)


def test_teams_of_a_size_share_their_helpers() -> None:
    run(StepTeam(2))
    before = set(threading.enumerate())
    run(StepTeam(2))
    assert set(threading.enumerate()) <= before


def test_a_forked_process_computes_without_helpers() -> None:
    """Threads do not survive a fork, so the child has nobody to wait for."""
    team = StepTeam(2)
    run(team)
    child = os.fork()
    if child == 0:
        os._exit(0 if (run(team) == PHASES).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
