"""Intersections and differences of automata on bytes: determinised, paired, trimmed to what lives; knows no syntax."""

from __future__ import annotations

import numpy as np

from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import DEAD, FULL_PRODUCT, mark_live, product
from sglang_lite.grammar.nfa import ANY_TEXT, ByteDfa, ByteNfa, Int32Array, UInt8Array
from sglang_lite.grammar.tables import LazyTables

DEFAULT_MAX_PRODUCT_STATES = 50_000
_FIRST_PAIRS = 256
_MAX_TABLE_BYTES = 256 << 20  # while operands are determinised; the result is far smaller


def intersection(left: ByteNfa, right: ByteNfa, *, max_states: int = DEFAULT_MAX_PRODUCT_STATES) -> ByteDfa | None:
    """The texts of both; None if there are none.

    Raises:
        GrammarTooLargeError: an operand has, or the result has on the way, more than `max_states` deterministic states.
    """
    if left.start < 0 or right.start < 0:
        return None
    return _combined(left, right, max_states, excluded=False)


def difference(left: ByteNfa, right: ByteNfa, *, max_states: int = DEFAULT_MAX_PRODUCT_STATES) -> ByteDfa | None:
    """The texts of `left` that are not in `right`; None if there are none. Errors as of `intersection`."""
    if left.start < 0:
        return None
    return (
        determinised(left, max_states=max_states)
        if right.start < 0
        else _combined(left, right, max_states, excluded=True)
    )


def determinised(nfa: ByteNfa, *, max_states: int = DEFAULT_MAX_PRODUCT_STATES) -> ByteDfa | None:
    """The texts of one automaton without recursion and special tokens; None if there are none."""
    if nfa.start < 0:
        return None
    table, accepting = _table(nfa, max_states)
    return _trimmed(table, accepting, _joint_ranges(nfa.byte_class))


def _combined(left: ByteNfa, right: ByteNfa, max_states: int, *, excluded: bool) -> ByteDfa | None:
    left_table, left_accepting = _table(left, max_states)
    right_table, right_accepting = _table(right, max_states)
    ranges = _joint_ranges(left.byte_class, right.byte_class)
    columns = np.stack([left.byte_class[ranges[:, 0]], right.byte_class[ranges[:, 0]]], axis=1).astype(np.int32)
    capacity = _FIRST_PAIRS
    while True:
        pairs = np.zeros(capacity, np.int64)
        pairs[0] = 1  # both at their start, which is state 0
        buckets = np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int32)
        table = np.full((capacity, len(columns)), DEAD, np.int32)
        count = product(left_table, right_table, columns, pairs, buckets, table)
        if count != FULL_PRODUCT:
            break
        if capacity >= max_states:
            raise _too_large(max_states)
        capacity = min(4 * capacity, max_states)
    pairs, table = pairs[:count], table[:count]
    in_right = np.append(right_accepting, np.uint8(0))[
        (pairs & 0xFFFFFFFF) - 1
    ]  # behind a dead right side: the last, 0
    in_left = left_accepting[pairs >> 32]
    accepting = in_left & (1 - in_right if excluded else in_right)
    return _trimmed(table, accepting, ranges)


def _table(nfa: ByteNfa, max_states: int) -> tuple[Int32Array, UInt8Array]:
    """All transitions (int32 [S, C]) and accepting states (uint8 [S]); the start is state 0."""
    tables = LazyTables(nfa, max_bytes=_MAX_TABLE_BYTES)
    found = tables.expand_all(max_states)
    if found is None:
        raise _too_large(max_states)
    return found


def _too_large(max_states: int) -> GrammarTooLargeError:
    return GrammarTooLargeError(
        f"intersecting or subtracting patterns: more than {max_states} deterministic states; use shorter repeats or simpler patterns"
    )


def _joint_ranges(*byte_classes: UInt8Array) -> Int32Array:
    """The ranges of bytes within which no automaton tells them apart: int32 [J, 2], first and last byte."""
    begins = np.zeros(256, np.bool_)
    begins[0] = True
    for byte_class in byte_classes:
        begins[1:] |= byte_class[1:] != byte_class[:-1]
    first = np.flatnonzero(begins)
    return np.stack([first, np.append(first[1:] - 1, 255)], axis=1).astype(np.int32)


def _trimmed(table: Int32Array, accepting: UInt8Array, ranges: Int32Array) -> ByteDfa | None:
    """The automaton of the complete `table`, int32 [S, J], whose column j reads the bytes `ranges[j]` (first, last)."""
    live = accepting.copy()
    mark_live(table, live)
    if not live[0]:
        return None
    goes_on = live[np.maximum(table, 0)].astype(np.bool_) & (table >= 0)
    has_edges = goes_on.any(axis=1)
    kept = (live == 1) & has_edges
    kept[0] = True
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    rows = np.flatnonzero(kept)
    goes_on, targets = goes_on[rows], np.where(goes_on, table, -1)[rows]
    # Neighbouring columns with one target are one edge.
    begins = goes_on.copy()
    begins[:, 1:] &= targets[:, 1:] != targets[:, :-1]
    ends = goes_on.copy()
    ends[:, :-1] &= targets[:, 1:] != targets[:, :-1]
    where, first = np.nonzero(begins)
    last = np.nonzero(ends)[1]
    target = targets[where, first]
    edges = np.stack([ranges[first, 0], ranges[last, 1], number[target], accepting[target].astype(np.int32)], axis=1)
    return ByteDfa(
        offsets=np.cumsum([0, *np.bincount(where, minlength=len(rows))], dtype=np.int32),
        edges=np.ascontiguousarray(edges, np.int32),
        accepts_empty=bool(accepting[0]),
        covers=2 * ANY_TEXT - 1,
    )
