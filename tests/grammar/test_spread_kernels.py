from __future__ import annotations

import numpy as np

from sglang_lite.grammar.spread_kernels import enter_first, spread_back, spread_on


def flags(*states: int, size: int = 6) -> np.ndarray:
    found = np.zeros(size, np.uint8)
    found[list(states)] = 1
    return found


def test_back_goes_only_where_both_ends_are_marked() -> None:
    arrows = np.array([[0, 1, 1], [1, 2, 2], [3, 2, 4]], np.int32)
    marked = flags(2)
    spread_back(arrows, marked)
    assert np.flatnonzero(marked).tolist() == [0, 1, 2]


def test_on_marks_both_ends_and_stays_within_what_is_allowed() -> None:
    arrows = np.array([[0, 1, 3], [3, 4, 4], [1, 5, 5], [4, 0, 0]], np.int32)
    marked = flags(0)
    spread_on(arrows, flags(0, 1, 3, 4), marked)
    assert np.flatnonzero(marked).tolist() == [0, 1, 3, 4]


def test_rules_entered_first_pass_over_rules_that_may_be_empty() -> None:
    """Rule 0 is `r1 r2`, rule 1 is empty or a letter, rule 2 refers to rule 0: states 0-2, 3-4, 5-6."""
    empty_offsets = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    empty_targets = np.array([4], np.int32)
    ref_offsets = np.array([0, 1, 2, 2, 2, 2, 3, 3], np.int32)
    refs = np.array([[1, 1], [2, 2], [0, 6]], np.int32)
    borders = np.array([[0, 2], [3, 4], [5, 6]], np.int32)
    nullable = np.zeros(3, np.uint8)
    found = np.zeros((8, 3), np.int32)
    count = enter_first(empty_offsets, empty_targets, ref_offsets, refs, borders, nullable, found)
    assert {tuple(row) for row in found[:count].tolist()} == {(0, 1, 1), (0, 2, 2), (2, 0, 6)}
    assert nullable.tolist() == [0, 1, 0]
    assert enter_first(empty_offsets, empty_targets, ref_offsets, refs, borders, nullable, found[:1]) == -1
