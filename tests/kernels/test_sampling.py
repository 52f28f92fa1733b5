"""The reference of sampling against its own words, on rows small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens

HALVES = np.log(np.array([0.125, 0.5, 0.125, 0.25]))


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p", "kept"),
    [
        (-1, 1.0, 0.0, [0, 1, 2, 3]),
        (1, 1.0, 0.0, [1]),
        (3, 1.0, 0.0, [0, 1, 3]),  # 0 and 2 are equal: the lower id stays
        (-1, 0.5, 0.0, [1]),
        (-1, 0.6, 0.0, [1, 3]),
        (-1, 0.8, 0.0, [0, 1, 3]),
        (-1, 1e-9, 0.0, [1]),
        (-1, 1.0, 0.3, [1, 3]),
        (-1, 1.0, 1.0, [1]),
        (2, 0.66, 0.0, [1]),  # of what top-k left, token 1 holds two thirds
        (2, 0.67, 0.0, [1, 3]),
        (3, 0.95, 0.3, [1, 3]),
    ],
)
def test_kept_tokens_of_a_known_distribution(top_k: int, top_p: float, min_p: float, kept: list[int]) -> None:
    assert kept_tokens(HALVES, 1.0, top_k, top_p, min_p).tolist() == kept


def test_temperature_changes_the_shares_that_top_p_counts() -> None:
    assert kept_tokens(HALVES, 0.5, -1, 0.72, 0.0).tolist() == [1]  # 0.25 of 0.34375
    assert kept_tokens(HALVES, 100.0, -1, 0.72, 0.0).tolist() == [0, 1, 3]


def test_masked_tokens_are_never_kept() -> None:
    masked = np.where([False, True, False, False], -np.inf, HALVES)
    assert kept_tokens(masked, 1.0, -1, 1.0, 0.0).tolist() == [0, 2, 3]


def test_draw_token_walks_the_kept_ids_upwards() -> None:
    kept = np.array([0, 1, 3])
    assert [draw_token(HALVES, 1.0, kept, number) for number in (0.0, 0.14, 0.15, 0.71, 0.72, 0.999999)] == [
        0,
        0,
        1,
        1,
        3,
        3,
    ]
