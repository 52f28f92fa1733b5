"""The three formulas of `select` on numbers worked out by hand."""

from __future__ import annotations

import pytest

from sglang_lite.choice_scoring import (
    first_argmax,
    greedy_token_selection,
    mean,
    token_length_normalized,
    unconditional_likelihood_normalized,
)

# organ | organ + ism | ant + id + is + est + ablish + ment + arian + ism
ROWS = [
    [-1.0],
    [-1.0, -3.0],
    [-4.0, -0.1, -0.2, -0.1, -0.1, -0.1, -0.1, -0.3],
]
# Without context "organism" is much less likely than "organ", so the context gives it most.
UNCONDITIONAL = [
    [None],
    [None, -9.0],
    [None, -0.1, -0.2, -0.1, -0.1, -0.1, -0.1, -0.3],
]


def test_token_length_normalized_takes_the_highest_mean() -> None:
    """Means: -1, -2, -0.625: the long, self-completing word wins."""
    assert [mean(row) for row in ROWS] == pytest.approx([-1.0, -2.0, -0.625])
    assert token_length_normalized(ROWS).index == 2


def test_greedy_token_selection_compares_place_by_place() -> None:
    """The first column leaves organ and organism (-1 each); in the second organ counts on with its mean -1 > -3."""
    decision = greedy_token_selection(ROWS)
    assert decision.index == 0
    matrix = decision.meta["greedy_logprob_matrix"]
    assert [len(row) for row in matrix] == [8, 8, 8]
    assert matrix[0] == [-1.0] * 8
    assert matrix[1] == [-1.0, -3.0] + [-2.0] * 6
    assert matrix[2] == ROWS[2]


def test_unconditional_likelihood_takes_what_gains_most_from_the_context() -> None:
    """Gains: -1; (-1 + 6) / 2 = 2.5; -4 / 8 = -0.5."""
    decision = unconditional_likelihood_normalized(ROWS, UNCONDITIONAL)
    assert decision.index == 1
    assert decision.meta["normalized_unconditional_prompt_logprobs"] == pytest.approx([-1.0, 2.5, -0.5])
    assert decision.meta["unconditional_token_logprobs"] == UNCONDITIONAL


def test_ties_go_to_the_first_choice() -> None:
    rows = [[-2.0], [-1.0], [-1.0, -1.0]]
    assert first_argmax([1.0, 3.0, 3.0]) == 1
    assert token_length_normalized(rows).index == 1
    assert greedy_token_selection(rows).index == 1
    assert unconditional_likelihood_normalized(rows, [[None], [None], [None, 0.0]]).index == 1


def test_zero_logprobs_count_as_certain_not_as_missing() -> None:
    assert token_length_normalized([[-0.1], [0.0, 0.0]]).index == 1


def test_an_empty_choice_has_the_mean_zero() -> None:
    assert mean([]) == 0.0
    assert token_length_normalized([[-0.1], []]).index == 1
    assert greedy_token_selection([[-0.1], []]).index == 1
    assert greedy_token_selection([[]]).index == 0
    assert unconditional_likelihood_normalized([[-0.5], []], [[None], []]).index == 1


def test_rows_of_different_lengths_for_one_choice_are_refused() -> None:
    with pytest.raises(ValueError):
        unconditional_likelihood_normalized([[-1.0, -1.0]], [[None]])
