"""Threads of our own for whole steps: they help whoever computes, who never waits for one of them to turn up.

A step is a C function that every thread calls with the same block (`team` says how they share the work), so it is done
when the caller's call returns, even if no helper has come. Helpers wait on a semaphore without Python's lock. One that
comes late finds a block of a step that is over, in which nothing is left to claim; blocks are reused only when nobody is
inside. So a busy machine, a fork or a thread that the system holds back cost speed, never a hang.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types

from sglang_lite.kernels.cpu.simd_sync import add_released, call_job, call_semaphore, exchange, load_acquired, relax
from sglang_lite.kernels.cpu.team import GIVE_WAY, LINE, NEXT_THREAD, SYNC, THREADS, sync_bytes

_SLOTS = 8
"""Steps whose blocks stay untouched for helpers that are late."""

_GENERATION = 0
_SLOT_LINES, _OPEN, _ACTIVE, _JOB = 3, 0, 1, 2
_HELPER_LINES, _ASLEEP, _SEMAPHORE = 2, 0, 1
_FIRST_SLOT = 1
_FIRST_HELPER = _FIRST_SLOT + _SLOTS * _SLOT_LINES

_SPINS = 4000
"""How long a helper looks for the next step before it sleeps, some 0.1 ms: from the layers to the head."""

_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _serve(pool: int, helper: int, wait: int) -> None:
    """What a helper does all its life."""
    line = pool + LINE * (_FIRST_HELPER + helper * _HELPER_LINES)
    seen = np.int64(0)
    while True:
        spins = 0
        generation = load_acquired(pool)
        while generation == seen and spins < _SPINS:
            relax()
            spins += 1
            generation = load_acquired(pool)
        if generation == seen:
            exchange(line, 1)
            if load_acquired(pool) == seen:
                call_semaphore(wait, line + LINE * _SEMAPHORE)
            exchange(line, 0)
            continue
        seen = generation
        slot = pool + LINE * (_FIRST_SLOT + seen % _SLOTS * _SLOT_LINES)
        add_released(slot + LINE * _ACTIVE, 1)
        if load_acquired(slot + LINE * _OPEN) == seen:
            call_job(load_acquired(slot + LINE * _JOB), load_acquired(slot + LINE * _JOB + 8))
        add_released(slot + LINE * _ACTIVE, -1)


def _conduct(pool: int, helpers: int, wake: int, generation: int, function: int, block: int) -> None:
    """Offer a step to the first `helpers` helpers, compute it, and take the offer back."""
    slot = pool + LINE * (_FIRST_SLOT + generation % _SLOTS * _SLOT_LINES)
    exchange(slot + LINE * _JOB, function)
    exchange(slot + LINE * _JOB + 8, block)
    exchange(slot + LINE * _OPEN, generation)
    exchange(pool, generation)
    for helper in range(helpers):
        line = pool + LINE * (_FIRST_HELPER + helper * _HELPER_LINES)
        if exchange(line, 0) == 1:
            call_semaphore(wake, line + LINE * _SEMAPHORE)
    call_job(function, block)
    exchange(slot + LINE * _OPEN, 0)


class StepTeam:
    """The caller and `count - 1` helpers, of which there is one set in a process; `count` is 1 where they cannot be had.

    Steps of several Python threads may overlap: the first has the helpers, the others compute alone.
    """

    def __init__(self, count: int) -> None:
        assert count >= 1, f"the number of threads must be at least 1, got {count}"
        self._helpers = _helpers(count - 1) if count > 1 else None
        self.count = count if self._helpers is not None else 1

    def run(self, function: int, block: np.ndarray, phases: int, threads: int | None = None) -> None:
        """Compute a step.

        Args:
            function: address of `void f(int64_t *block)`.
            block: int64, its first numbers are those that `team` names, all but `LENGTH` filled in here; copied.
            phases: how many phases the step has.
            threads: how many threads share it, the caller included; None: all.

        """
        threads = self.count if threads is None else min(threads, self.count)
        if self._helpers is not None and threads > 1 and self._helpers.run(function, block, phases, threads):
            return
        sync = np.zeros(sync_bytes(phases, 1) + LINE, dtype=np.uint8)
        _enter(block, sync, 1)
        _WORKER(function)(block.ctypes.data)


class _Helpers:
    """Threads that wait for steps, and the memory through which they are told; both live as long as the process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._busy = threading.Lock()
        self._generation = 0
        self._memory = np.zeros((_FIRST_HELPER + count * _HELPER_LINES + 1) * LINE, dtype=np.uint8)
        self._pool = _aligned(self._memory)
        self._blocks = [np.zeros(0, dtype=np.int64) for _ in range(_SLOTS)]
        self._syncs = [np.zeros(0, dtype=np.uint8) for _ in range(_SLOTS)]
        functions = _semaphore_functions()
        assert functions is not None, "there are no semaphores on this system"
        initialise, wait, self._wake = functions
        serve, self._conduct = _compiled()
        for helper in range(count):
            _INITIALISE(initialise)(self._pool + LINE * (_FIRST_HELPER + helper * _HELPER_LINES + _SEMAPHORE), 0, 0)
            arguments = (self._pool, helper, wait)
            threading.Thread(target=serve, args=arguments, name=f"sglang-lite-step-{helper + 1}", daemon=True).start()

    def run(self, function: int, block: np.ndarray, phases: int, threads: int) -> bool:
        """As `StepTeam.run`; False if somebody else's step has the helpers."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            slot = self._free_slot()
            if slot is None:
                return False
            if len(self._blocks[slot]) != len(block):
                self._blocks[slot] = np.zeros(len(block), dtype=np.int64)
            need = sync_bytes(phases, threads) + LINE
            if len(self._syncs[slot]) < need:
                self._syncs[slot] = np.zeros(need, dtype=np.uint8)
            own = self._blocks[slot]
            own[:] = block
            self._syncs[slot][:need] = 0
            _enter(own, self._syncs[slot], threads)
            self._conduct(self._pool, threads - 1, self._wake, self._generation, function, own.ctypes.data)
            return True
        finally:
            self._busy.release()

    def _free_slot(self) -> int | None:
        """The next slot that no helper is inside; the generation that goes with it is taken."""
        lines = self._memory[self._pool - self._memory.ctypes.data :].view(np.int64)
        for _ in range(_SLOTS):
            self._generation += 1
            slot = self._generation % _SLOTS
            if lines[(_FIRST_SLOT + slot * _SLOT_LINES + _ACTIVE) * LINE // 8] == 0:
                return slot
        return None


@cache
def _helpers(count: int) -> _Helpers | None:
    return _Helpers(count) if _semaphore_functions() is not None else None


def _enter(block: np.ndarray, sync: np.ndarray, threads: int) -> None:
    block[THREADS], block[NEXT_THREAD], block[SYNC] = threads, 0, _aligned(sync)
    block[GIVE_WAY] = yield_address()


def _aligned(memory: np.ndarray) -> int:
    return -(-memory.ctypes.data // LINE) * LINE


_INITIALISE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_uint)
_SERVE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
_CONDUCT = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)


@cache
def _compiled() -> tuple[Any, Any]:
    """`_serve` and `_conduct` as C functions; the first call compiles or loads them."""
    serve = cfunc(types.void(*[types.int64] * 3), cache=True)(_serve).address
    conduct = cfunc(types.void(*[types.int64] * 6), cache=True)(_conduct).address
    assert serve is not None and conduct is not None, "the compiled functions have no address"
    return _SERVE(serve), _CONDUCT(conduct)


def compile_team() -> None:
    """Compile or load what helpers run."""
    _compiled()


@cache
def _semaphore_functions() -> tuple[int, int, int] | None:
    """Addresses of `sem_init`, `sem_wait` and `sem_post`; None where semaphores in plain memory do not exist."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    init, wait, post = (
        ctypes.cast(f, ctypes.c_void_p).value for f in (library.sem_init, library.sem_wait, library.sem_post)
    )
    return (init, wait, post) if init and wait and post else None


@cache
def yield_address() -> int:
    """Address of the C function `int f(void)` that lets other threads run; 0 where the system has none by that name."""
    if sys.platform == "win32":
        return 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
