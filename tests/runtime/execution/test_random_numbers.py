"""Random numbers: fixed values, seeds and positions that do not resemble each other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.execution.random_numbers import uniform


@given(st.integers(0, 2**200), st.integers(0, 2**40))
def test_numbers_lie_in_the_half_open_unit_interval_and_repeat(seed: int, position: int) -> None:
    number = uniform(seed, position)
    assert 0 <= number < 1
    assert number == uniform(seed, position)


def test_numbers_do_not_change_between_versions() -> None:
    """A seeded text that users have kept must come again: these three numbers are part of the interface."""
    assert [uniform(0, 0), uniform(42, 7), uniform(2**64 + 5, 1)] == [
        0.6524484863740322,
        0.7347204584623639,
        0.042845962215512845,
    ]


def test_neighbouring_positions_and_seeds_fill_the_interval_evenly() -> None:
    """Chi-square over 64 cells with 64,000 numbers: 63 degrees of freedom, 0.001 quantile at 103."""
    for numbers in (
        [uniform(7, position) for position in range(64_000)],
        [uniform(seed, 7) for seed in range(64_000)],
        [uniform(seed, seed) for seed in range(64_000)],
    ):
        counts = np.histogram(numbers, bins=64, range=(0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 103


def test_seeds_next_to_each_other_give_unrelated_sequences() -> None:
    first, second = (np.array([uniform(seed, position) for position in range(20_000)]) for seed in (1, 2))
    for shift in (0, 1, 2):
        correlation = np.corrcoef(first[shift:], second[: len(second) - shift])[0, 1]
        assert abs(correlation) < 0.03


def test_all_bits_of_a_long_seed_count() -> None:
    seeds = [5, 5 + 2**64, 5 + 2**128, 5 + 2**64 + 2**128]
    assert len({uniform(seed, 3) for seed in seeds}) == 4
