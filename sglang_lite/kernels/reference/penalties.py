"""Penalties and biases on logits in plain numpy, token by token: the oracle."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def penalize(
    row: NDArray[np.float32], seen: Iterable[tuple[int, int]], repetition: float, frequency: float, presence: float
) -> None:
    """Repetition penalty, then frequency and presence penalty, in place, each step rounded to float32.

    Args:
        row: float32 [V], written.
        seen: (token, how often it was generated) of every token of prompt and output; 0: in the prompt only.
        repetition: divides positive logits of seen tokens, multiplies others.
        frequency: subtracted for each time that a token was generated.
        presence: subtracted once from generated tokens.

    """
    again, often, once = (np.float32(factor) for factor in (repetition, frequency, presence))
    for token, count in seen:
        row[token] = row[token] / again if row[token] > 0 else row[token] * again
        if count:
            row[token] -= np.float32(count) * often + once


def add_bias(row: NDArray[np.float32], biases: Iterable[tuple[int, float]]) -> None:
    """Add to the logits of tokens, in place; row is float32 [V]."""
    for token, bias in biases:
        row[token] += np.float32(bias)
