"""The largest of many numbers without sorting them all; knows no tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLUMNS_PER_RANK = 4


def top_indices(values: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """The indices of the `k` largest values, best first, ties by index; exactly a stable descending sort cut at `k`.

    The values are laid into columns. The k-th largest column maximum is a lower bound of the k-th largest value, as k
    columns have a value that is not below it; so only values from this bound on are sorted. One pass over the
    values and a sort of little more than `k`, unless many values are equal.

    Args:
        values: `[n]`, no NaN.
        k: at least 1; more than `n` means all.

    """
    n = len(values)
    k = min(k, n)
    if k == n:
        return np.argsort(-values, kind="stable")
    depth = max(n // (_COLUMNS_PER_RANK * k), 1)
    width = n // depth
    maxima = values[: depth * width].reshape(depth, width).max(axis=0)
    bound = np.partition(maxima, width - k)[width - k]
    candidates = np.flatnonzero(values >= bound)
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]
