"""The three formulas of `select`: pure functions over token log-probabilities; they know no model and no tokens.

Behaviour matched: SGLang's `lang/choices.py` (see its test of organ / organism / antidisestablishmentarianism), with
scores over exactly the tokens of each choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = Sequence[Sequence[float]]
"""One row a choice: the log-probabilities of its tokens, in order; rows are not empty, lengths may differ."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The index of the chosen row, and what the method wants reported."""

    index: int
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


def mean(row: Sequence[float]) -> float:
    """The arithmetic mean; 0.0 for an empty choice, whose text is certain."""
    return sum(row) / len(row) if row else 0.0


def first_argmax(values: Sequence[float]) -> int:
    """The index of the largest value, the first one on ties."""
    return max(range(len(values)), key=lambda i: (values[i], -i))


def token_length_normalized(rows: Rows) -> Decision:
    """The choice with the highest mean token log-probability."""
    return Decision(first_argmax([mean(row) for row in rows]))


def greedy_token_selection(rows: Rows) -> Decision:
    """The choice that survives a column-by-column comparison.

    Shorter rows are padded with their own mean; in each column only rows equal to the column's maximum stay, until
    one is left or the columns end; then the first one left is taken.
    """
    width = max((len(row) for row in rows), default=0)
    matrix = [list(row) + [mean(row)] * (width - len(row)) for row in rows]
    left = list(range(len(rows)))
    for column in range(width):
        best = max(matrix[i][column] for i in left)
        left = [i for i in left if matrix[i][column] == best]
        if len(left) == 1:
            break
    return Decision(left[0], {"greedy_logprob_matrix": matrix})


def unconditional_likelihood_normalized(rows: Rows, unconditional: Sequence[Sequence[float | None]]) -> Decision:
    """The choice whose tokens gain most from the context: highest mean of conditional minus unconditional.

    Args:
        unconditional: log-probabilities of the same tokens without any context; None (a first token) counts as 0.
    """
    plain = [[0.0 if value is None else value for value in row] for row in unconditional]
    gains = [mean([a - b for a, b in zip(row, base, strict=True)]) for row, base in zip(rows, plain, strict=True)]
    return Decision(
        first_argmax(gains),
        {
            "unconditional_token_logprobs": [list(row) for row in unconditional],
            "normalized_unconditional_prompt_logprobs": gains,
        },
    )


def confidence(scores: Sequence[float], index: int) -> float:
    """The probability of choice `index` among all: the softmax of the scores, exp(s_i) / sum_j exp(s_j).

    Of two choices that score alike each has 0.5; scores are means of natural log-probabilities, so that for choices of one
    token this is the model's own probability of the token, given that it is one of the choices.
    """
    best = max(scores)
    weights = [math.exp(score - best) if score > -math.inf else 0.0 for score in scores]
    return weights[index] / sum(weights) if best > -math.inf else 1.0 / len(scores)
