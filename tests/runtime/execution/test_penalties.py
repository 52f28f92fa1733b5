"""Penalties and bias on a known row of logits, against the formulas written out."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.execution.penalties import adjust_logits
from tests.runtime.execution.support import spec

LOGITS = np.array([2.0, -1.0, 0.5, 0.0, 3.0], dtype=np.float32)


def test_frequency_subtracts_the_penalty_for_every_generated_occurrence() -> None:
    out = adjust_logits(LOGITS, spec(frequency_penalty=0.5, prompt_ids=[4, 4], output_ids=[0, 1, 0, 0]))
    assert out.tolist() == [2.0 - 3 * 0.5, -1.0 - 0.5, 0.5, 0.0, 3.0]


def test_presence_subtracts_the_penalty_once_from_generated_tokens_only() -> None:
    out = adjust_logits(LOGITS, spec(presence_penalty=0.5, prompt_ids=[4, 4], output_ids=[0, 1, 0, 0]))
    assert out.tolist() == [1.5, -1.5, 0.5, 0.0, 3.0]


def test_negative_penalties_encourage_repetition() -> None:
    out = adjust_logits(LOGITS, spec(presence_penalty=-1.0, frequency_penalty=-0.5, output_ids=[0, 0]))
    assert out.tolist() == [4.0, -1.0, 0.5, 0.0, 3.0]


def test_repetition_divides_positive_and_multiplies_negative_logits_of_prompt_and_output() -> None:
    out = adjust_logits(LOGITS, spec(repetition_penalty=2.0, prompt_ids=[4, 4, 1], output_ids=[0, 0, 3]))
    assert out.tolist() == [1.0, -2.0, 0.5, 0.0, 1.5]


def test_repetition_comes_before_the_subtractions_and_the_bias_last() -> None:
    out = adjust_logits(
        LOGITS,
        spec(
            repetition_penalty=2.0,
            frequency_penalty=0.25,
            presence_penalty=0.5,
            logit_bias=((0, -5.0), (2, 7.0), (2, 1.0)),
            output_ids=[0, 0],
        ),
    )
    assert out.tolist() == [2.0 / 2 - 2 * 0.25 - 0.5 - 5, -1.0, 8.5, 0.0, 3.0]


def test_neutral_parameters_leave_the_row_as_it_is() -> None:
    assert adjust_logits(LOGITS, spec(prompt_ids=[1], output_ids=[0, 0])) is LOGITS


def test_the_models_logits_are_never_written() -> None:
    before = LOGITS.copy()
    adjust_logits(LOGITS, spec(repetition_penalty=1.5, frequency_penalty=1.0, logit_bias=((1, 3.0),), output_ids=[0]))
    assert LOGITS.tolist() == before.tolist()


@pytest.mark.parametrize(
    "bad",
    [
        spec(logit_bias=((5, 1.0),)),
        spec(presence_penalty=1.0, output_ids=[1, 9]),
        spec(repetition_penalty=1.5, prompt_ids=[-1]),
    ],
)
def test_a_token_outside_the_vocabulary_is_named(bad: object) -> None:
    with pytest.raises(ExecutionError, match=r"(token|logit_bias) (5|9|-1), expected ids from 0 to 4"):
        adjust_logits(LOGITS, bad)  # pyright: ignore[reportArgumentType]
