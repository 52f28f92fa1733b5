"""The compiled loops over a graph of states before it is an automaton: what is reached, and which rules are entered first."""

from __future__ import annotations

import numpy as np
from numba import njit

from sglang_lite.grammar.nfa import Int32Array, UInt8Array, wide


@njit(nogil=True, cache=True)
def by_source(arrows: Int32Array, size: int) -> tuple[Int32Array, Int32Array]:
    """`arrows`, int32 [*, 3], in the order of their sources (of equal ones as they stood), and where those of each begin (int32 [size + 1])."""
    offsets = np.zeros(size + 1, np.int32)
    for i in range(arrows.shape[0]):
        offsets[arrows[i, 0] + 1] += 1
    for state in range(size):
        offsets[state + 1] += offsets[state]
    place = offsets[:size].copy()
    rows = np.empty_like(arrows)
    for i in range(arrows.shape[0]):
        source = arrows[i, 0]
        rows[place[source], 0] = source
        rows[place[source], 1] = arrows[i, 1]
        rows[place[source], 2] = arrows[i, 2]
        place[source] += 1
    return offsets, rows


@njit(nogil=True, cache=True)
def find_live(arrows: Int32Array, start: int, exits: Int32Array, size: int) -> UInt8Array:
    """Mark the states that lie on a path of a whole text: uint8 [size].

    `arrows`, int32 [*, 3], are (source, target, partner): a way on exists where both others lead to the end, and it passes both.
    """
    productive = _leading_to(arrows, exits, size)
    live = np.zeros(size, np.uint8)
    if not productive[start]:
        return live
    offsets, rows = by_source(arrows, size)
    waiting = np.empty(size, np.int32)
    live[start] = 1
    waiting[0] = start
    height = 1
    while height > 0:
        height -= 1
        state = waiting[height]
        for at in range(offsets[state], offsets[state + 1]):
            if productive[rows[at, 1]] and productive[rows[at, 2]]:
                for side in range(1, 3):
                    target = rows[at, side]
                    if not live[target]:
                        live[target] = 1
                        waiting[height] = target
                        height += 1
    return live


@njit(nogil=True, cache=True)
def _leading_to(arrows: Int32Array, exits: Int32Array, size: int) -> UInt8Array:
    """Mark the states with a way to one of `exits`: uint8 [size]."""
    productive = np.zeros(size, np.uint8)
    waiting = np.empty(size, np.int32)
    height = 0
    for state in exits:
        if not productive[state]:
            productive[state] = 1
            waiting[height] = state
            height += 1
    offsets, users = _users(arrows, size)
    missing = np.full(arrows.shape[0], 2, np.uint8)
    while height > 0:
        height -= 1
        state = waiting[height]
        for at in range(offsets[state], offsets[state + 1]):
            arrow = users[at]
            missing[arrow] -= 1
            source = arrows[arrow, 0]
            if missing[arrow] == 0 and not productive[source]:
                productive[source] = 1
                waiting[height] = source
                height += 1
    return productive


@njit(nogil=True, cache=True)
def _users(arrows: Int32Array, size: int) -> tuple[Int32Array, Int32Array]:
    """For each state the arrows that name it as target or partner, twice if it is both: offsets, int32 [size + 1], and numbers of arrows."""
    offsets = np.zeros(size + 1, np.int32)
    for i in range(arrows.shape[0]):
        offsets[arrows[i, 1] + 1] += 1
        offsets[arrows[i, 2] + 1] += 1
    for state in range(size):
        offsets[state + 1] += offsets[state]
    place = offsets[:size].copy()
    users = np.empty(2 * arrows.shape[0], np.int32)
    for i in range(arrows.shape[0]):
        for side in range(1, 3):
            state = arrows[i, side]
            users[place[state]] = i
            place[state] += 1
    return offsets, users


@njit(nogil=True, cache=True)
def distinct(empty: Int32Array, size: int) -> Int32Array:
    """Empty edges, int32 [*, 3], once each and in the order of their sources, none from a state to itself."""
    _, rows = by_source(empty, size)
    seen = np.full(size, -1, np.int32)
    count = 0
    for i in range(rows.shape[0]):
        source, target = rows[i, 0], rows[i, 2]
        if source != target and seen[target] != source:
            seen[target] = source
            rows[count, 0], rows[count, 1], rows[count, 2] = source, rows[i, 1], target
            count += 1
    return rows[:count].copy()


@njit(nogil=True, cache=True)
def stand_ins(empty: Int32Array, busy: UInt8Array) -> Int32Array:
    """For each state the one behind its only empty edge, as far as that goes, or itself: int32 [N]. `busy` ones have other edges."""
    size = busy.shape[0]
    behind = np.arange(size).astype(np.int32)
    degree = np.zeros(size, np.int32)
    for i in range(empty.shape[0]):
        degree[empty[i, 0]] += 1
        behind[empty[i, 0]] = empty[i, 2]
    for state in range(size):
        if degree[state] != 1 or busy[state]:
            behind[state] = state
    for state in range(size):
        end = behind[state]
        while behind[end] != end:
            end = behind[end]
        at = state
        while behind[at] != end:
            following = behind[at]
            behind[at] = end
            at = following
    return behind


@njit(nogil=True, cache=True)
def kept_arrows(arrows: Int32Array, live: UInt8Array, partner: Int32Array) -> Int32Array:
    """The arrows, int32 [*, 3], between live states; with a `partner`, int32 [*], only those whose carried number has a live one there."""
    kept = np.empty_like(arrows)
    count = 0
    for i in range(arrows.shape[0]):
        if not live[arrows[i, 0]] or not live[arrows[i, 2]]:
            continue
        if partner.shape[0] and not live[partner[arrows[i, 1]]]:
            continue
        kept[count, 0], kept[count, 1], kept[count, 2] = arrows[i, 0], arrows[i, 1], arrows[i, 2]
        count += 1
    return kept[:count].copy()


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
