"""Log-probabilities of tokens in plain numpy in float64: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_softmax(row: NDArray[np.float32]) -> NDArray[np.float64]:
    """`row - log(sum(exp(row)))`, float64 [V]; minus infinity stays."""
    wide = row.astype(np.float64)
    shifted = wide - wide.max()
    return shifted - np.log(np.exp(shifted).sum())


def top_tokens(row: NDArray[np.float32], num: int) -> NDArray[np.intp]:
    """The ids of the `num` largest logits, largest first, lower id first on ties."""
    return np.argsort(-row, kind="stable")[:num]
