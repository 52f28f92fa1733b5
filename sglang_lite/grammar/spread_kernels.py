"""The compiled loops over a graph of states before it is an automaton: what is reached, and which rules are entered first."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.grammar.nfa import Int32Array, UInt8Array, wide


@njit(nogil=True, cache=True)
def spread_back(arrows: Int32Array, flags: UInt8Array) -> None:
    """Mark in `flags`, uint8 [N], every state with an arrow, int32 [*, 3] (source, target, partner), to two marked states."""
    changed = True
    while changed:
        changed = False
        for i in range(arrows.shape[0] - 1, -1, -1):
            if not flags[arrows[i, 0]] and flags[arrows[i, 1]] and flags[arrows[i, 2]]:
                flags[arrows[i, 0]] = 1
                changed = True


@njit(nogil=True, cache=True)
def spread_on(arrows: Int32Array, allowed: UInt8Array, flags: UInt8Array) -> None:
    """Mark in `flags`, uint8 [N], both ends of every arrow from a marked state whose ends are both in `allowed`, uint8 [N]."""
    size = flags.shape[0]
    offsets = np.zeros(size + 2, np.int64)
    for i in range(arrows.shape[0]):
        offsets[arrows[i, 0] + 2] += 1
    for state in range(size):
        offsets[state + 2] += offsets[state + 1]
    order = np.empty(arrows.shape[0], np.int64)
    for i in range(arrows.shape[0]):
        order[offsets[arrows[i, 0] + 1]] = i
        offsets[arrows[i, 0] + 1] += 1
    waiting = np.empty(size, np.int64)
    height = 0
    for state in range(size):
        if flags[state]:
            waiting[height] = state
            height += 1
    while height > 0:
        height -= 1
        state = waiting[height]
        for at in range(offsets[state], offsets[state + 1]):
            target, partner = arrows[order[at], 1], arrows[order[at], 2]
            if allowed[target] and allowed[partner]:
                for end in (target, partner):
                    if not flags[end]:
                        flags[end] = 1
                        waiting[height] = end
                        height += 1


@njit(nogil=True, cache=True)
def enter_first(
    empty_offsets: Int32Array,
    empty_targets: Int32Array,
    ref_offsets: Int32Array,
    refs: Int32Array,
    borders: Int32Array,
    nullable: UInt8Array,
    found: Int32Array,
) -> int:
    """Which rules each rule enters before a byte is read.

    Args:
        empty_offsets, empty_targets: int32 [N + 1], [*]; states reached without a byte.
        ref_offsets, refs: int32 [N + 1], [*, 2]; the number of the rule entered, and the state behind it.
        borders: int32 [R, 2]; first and last state of each rule, -1 for a rule that is gone.
        nullable: uint8 [R]; zeros; set where the end of a rule is reached without a byte.
        found: int32 [*, 3]; filled with (rule, rule entered, state behind it).

    Returns the number of rows of `found`, or -1 if there is no room.
    """
    seen = np.full(empty_offsets.shape[0], -1, np.int64)
    waiting = np.empty(empty_offsets.shape[0], np.int64)
    mark, count = 0, 0
    changed = True
    while changed:
        changed = False
        count = 0
        for rule in range(borders.shape[0]):
            if borders[rule, 0] < 0:
                continue
            mark += 1
            waiting[0] = borders[rule, 0]
            seen[waiting[0]] = mark
            height = 1
            while height > 0:
                height -= 1
                state = waiting[height]
                if state == borders[rule, 1] and not nullable[rule]:
                    nullable[rule] = 1
                    changed = True
                for at in range(empty_offsets[state], empty_offsets[state + 1]):
                    height = _once(wide(empty_targets[at]), wide(mark), seen, waiting, wide(height))
                for at in range(ref_offsets[state], ref_offsets[state + 1]):
                    if count >= found.shape[0]:
                        return -1
                    found[count, 0], found[count, 1], found[count, 2] = rule, refs[at, 0], refs[at, 1]
                    count += 1
                    if nullable[refs[at, 0]]:
                        height = _once(wide(refs[at, 1]), wide(mark), seen, waiting, wide(height))
    return count


@njit(nogil=True, cache=True)
def _once(state: int, mark: int, seen: np.ndarray, waiting: np.ndarray, height: int) -> int:
    """Put `state` on `waiting[:height]` unless it has the mark; returns the new height."""
    if seen[state] != mark:
        seen[state] = mark
        waiting[height] = state
        height += 1
    return height
