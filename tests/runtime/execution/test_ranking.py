"""The top-k selection equals the sort it avoids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.execution.ranking import top_indices


def by_sorting(values: np.ndarray, k: int) -> list[int]:
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=200), st.integers(1, 220))
def test_top_indices_equal_a_stable_sort_with_many_ties(values: list[int], k: int) -> None:
    array = np.array(values, dtype=np.float32)
    assert top_indices(array, k).tolist() == by_sorting(array, k)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.integers(1, 100))
def test_top_indices_equal_a_stable_sort_of_many_different_values(seed: int, n: int, k: int) -> None:
    array = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    assert top_indices(array, k).tolist() == by_sorting(array, k)


@pytest.mark.parametrize("k", [1, 50, 1000, 20_000, 49_152])
def test_top_indices_of_a_whole_vocabulary_where_one_column_holds_all_large_values(k: int) -> None:
    """The column maxima are worst when the best values share a column; the bound must still let them through."""
    array = np.random.default_rng(0).standard_normal(49_152).astype(np.float32)
    array[:: 49_152 // 64] += 100
    assert top_indices(array, k).tolist() == np.argsort(-array, kind="stable")[:k].tolist()


def test_top_indices_of_no_values_are_none() -> None:
    assert top_indices(np.zeros(0, dtype=np.float32), 3).tolist() == []
