"""How threads share a phase of a step: they claim units of work, and none goes on before all units are done.

Each thread has a share of its own, so that it walks through its weights in order; when it is through, it takes from the
others' shares. Nobody waits for a thread, only for units that somebody has claimed: a thread that comes late, or never,
costs time at most. The counters are zero before a step.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.simd_sync import add_released, call_plain, load_acquired, relax

_fetch_add: Any = simd.fetch_add

LENGTH, THREADS, NEXT_THREAD, SYNC, GIVE_WAY = range(5)
"""Every step's block begins with: its length, how many threads share it, the next one's number, the counters, `finish`'s."""

FIELDS = 5
"""Where a step's own numbers begin."""

LINE = 64
"""Bytes between two counters, a cache line, so that threads do not take each other's."""

_CLAIMS = 4
"""Claims of one thread in a phase where it has enough units: large ones stay in step with the prefetcher."""

_SPINS = 2000


def sync_bytes(phases: int, threads: int) -> int:
    """Bytes of counters for a step of `phases` phases."""
    return phases * (1 + threads) * LINE


@njit(nogil=True, cache=True, error_model="numpy")
def phase_address(sync: int, phase: int, threads: int) -> int:
    """The counters of phase number `phase`."""
    return sync + phase * (1 + threads) * LINE


@njit(nogil=True, cache=True, error_model="numpy")
def next_units(phase: int, thread: int, threads: int, units: int, victim: int) -> tuple[int, int, int]:
    """Claim units `first` to `last - 1`; `first == last` when nothing is left to claim.

    `victim` is 0 at the first call in a phase and afterwards what the call before returned.
    """
    while victim < threads:
        owner = (thread + victim) % threads
        low, high = owner * units // threads, (owner + 1) * units // threads
        if low < high:
            claim = max(1, (high - low) // _CLAIMS) if threads > 1 else high - low
            first = low + _fetch_add(phase + LINE * (1 + owner), claim)
            if first < high:
                return first, min(first + claim, high), victim
        victim += 1
    return 0, 0, victim


@njit(nogil=True, cache=True, error_model="numpy")
def finish(phase: int, done: int, units: int, give_way: int) -> None:
    """Report `done` units and wait until all are. `give_way`: C function that lets other threads run; 0: none."""
    if add_released(phase, done) + done >= units:
        return
    spins = 0
    while load_acquired(phase) < units:
        spins += 1
        if spins < _SPINS or give_way == 0:
            relax()
        else:
            call_plain(give_way)
