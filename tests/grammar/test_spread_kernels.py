from __future__ import annotations

import numpy as np

from sglang_lite.grammar.spread_kernels import by_source, distinct, enter_first, find_live, kept_arrows, stand_ins


def rows(*arrows: tuple[int, int, int]) -> np.ndarray:
    return np.array(arrows, np.int32).reshape(-1, 3)


def live(*arrows: tuple[int, int, int], exits: tuple[int, ...], start: int = 0) -> list[int]:
    return np.flatnonzero(find_live(rows(*arrows), start, np.array(exits, np.int32), 6)).tolist()


def test_a_state_lives_where_the_start_leads_to_it_and_it_leads_to_an_end() -> None:
    assert live((0, 1, 1), (1, 2, 2), (0, 3, 3), (4, 2, 2), exits=(2,)) == [0, 1, 2]
    assert live((0, 1, 1), (1, 1, 1), exits=(2,)) == []


def test_an_arrow_with_two_ends_needs_both_and_passes_both() -> None:
    """State 0 enters 3 and returns to 1: without an end of 3 there is no way on, with one all live."""
    assert live((0, 1, 3), (1, 2, 2), (3, 4, 4), exits=(2,)) == []
    assert live((0, 1, 3), (1, 2, 2), (3, 4, 4), exits=(2, 4)) == [0, 1, 2, 3, 4]


def test_arrows_are_sorted_by_their_sources_and_keep_their_order() -> None:
    offsets, found = by_source(rows((2, 5, 0), (0, 6, 1), (2, 4, 1), (0, 3, 2)), 3)
    assert offsets.tolist() == [0, 2, 2, 4]
    assert found.tolist() == [[0, 6, 1], [0, 3, 2], [2, 5, 0], [2, 4, 1]]


def test_empty_edges_stand_once_and_loops_are_left_out() -> None:
    assert distinct(rows((1, 0, 2), (0, 0, 1), (1, 0, 1), (1, 0, 2)), 3).tolist() == [[0, 0, 1], [1, 0, 2]]


def test_a_state_with_one_empty_edge_alone_stands_for_the_last_one_behind() -> None:
    empty = rows((0, 0, 1), (1, 0, 2), (3, 0, 4), (3, 0, 5), (4, 0, 5))
    assert stand_ins(empty, np.array([0, 0, 0, 0, 1, 0], np.uint8)).tolist() == [2, 2, 2, 3, 4, 5]


def test_arrows_between_live_states_are_kept_if_the_rule_that_they_enter_lives() -> None:
    marks = np.array([1, 1, 0], np.uint8)
    arrows = rows((0, 0, 1), (0, 1, 1), (0, 0, 2))
    assert kept_arrows(arrows, marks, np.empty(0, np.int32)).tolist() == [[0, 0, 1], [0, 1, 1]]
    assert kept_arrows(arrows, marks, np.array([1, 2], np.int32)).tolist() == [[0, 0, 1]]


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
