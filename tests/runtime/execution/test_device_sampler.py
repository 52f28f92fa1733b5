"""What the host prepares for the device: only what is wanted, rows with masks first, errors known before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sglang_lite.errors import DeadEndError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.execution.answers import find_wishes
from sglang_lite.runtime.execution.device_sampler import WishPiece
from sglang_lite.runtime.execution.penalties import adjust_logits, list_penalties
from sglang_lite.runtime.execution.token_masks import TokenMasks
from sglang_lite.runtime.scheduler.plan import LogprobTarget, RowPlan
from tests.runtime.execution.support import AllowedTokens, row, spec

VOCAB = 40


def piece_of(*rows: RowPlan) -> WishPiece:
    lens = np.array([r.extend_len for r in rows], dtype=np.int64)
    return WishPiece(find_wishes(rows, lens), rows, TokenMasks(VOCAB, (1,)), VOCAB)


def test_plain_rows_bring_neither_masks_nor_penalties_nor_scores() -> None:
    piece = piece_of(
        row("a", [5, 6], [1], sample=spec()), row("b", [7], [2], sample=spec(temperature=0.5, top_k=VOCAB))
    )
    assert piece.tokens.tolist() == [1, 2]
    assert set(piece.arrays) == {
        "tokens", "draw_rows", "temperature", "top_k", "top_p", "min_p", "uniform", "given"
    }  # fmt: skip
    assert piece.arrays["temperature"].tolist() == pytest.approx([0.0, 0.5])
    assert piece.arrays["top_k"].tolist() == [0, 0], "as many as there are: all"
    assert piece.num_items == 2 + 2 + 2


def test_rows_with_masks_come_first_and_only_they_have_one() -> None:
    rows = [
        row("plain", [5], [1], sample=spec()),
        row("masked", [6], [2], sample=spec(grammar=AllowedTokens([3, 33]))),
        row("early", [7], [3], sample=spec(min_new_tokens=1)),
    ]
    piece = piece_of(*rows)
    assert piece.arrays["draw_rows"].tolist() == [1, 2, 0]
    assert piece.arrays["bitmask"].shape == (2, 2)
    assert piece.last_draws == {1: 0, 2: 1, 0: 2}


def test_a_dead_end_is_known_before_it_is_drawn_and_has_no_mask() -> None:
    piece = piece_of(row("a", [5], [1], sample=spec(grammar=AllowedTokens([]))))
    assert "bitmask" not in piece.arrays
    (outcome,) = piece.outcomes(np.ones(piece.num_items, dtype=np.int64))
    assert isinstance(outcome, DeadEndError)


def test_a_given_token_asks_no_constraint() -> None:
    grammar = AllowedTokens([3])
    drawn = spec(grammar=grammar, logprob=LogprobParams(top_num=1), repetition_penalty=1.5)._replace(given=9)
    piece = piece_of(row("a", [5], [1], sample=drawn))
    assert grammar.num_fills == 0
    assert piece.arrays["given"].tolist() == [9]
    assert not {name for name in piece.arrays if name.startswith(("penalty", "bitmask"))}


def test_a_row_with_guesses_gives_no_last_token_to_the_next_step() -> None:
    """Which of its draws is the last one that counts is known when all have come back."""
    guessing = row("a", [5, 6, 7], [1], sample=spec())._replace(drafts=(spec(), spec()))
    piece = piece_of(guessing, row("b", [5], [2], sample=spec()))
    assert list(piece.last_draws) == [1]
    assert len(piece.arrays["draw_rows"]) == 4


def test_targets_share_the_logits_of_a_token_and_bring_no_draw() -> None:
    targets = [LogprobTarget(1, (3, 4), 2), LogprobTarget(0, (5,)), LogprobTarget(1, ())]
    piece = piece_of(row("a", [5, 6, 7], [1], targets=targets))
    assert piece.tokens.tolist() == [0, 1]
    assert piece.arrays["score_ids"].tolist() == [5, 3, 4]
    assert piece.arrays["score_rows"].tolist() == [0, 1, 1]
    assert piece.arrays["top_rows"].tolist() == [1]


@pytest.mark.parametrize("prompt", [(), (2, 2, 9)])
@pytest.mark.parametrize(
    "penalties", [{"repetition_penalty": 1.5}, {"frequency_penalty": 0.5, "presence_penalty": -0.3}]
)
def test_the_lists_of_penalties_say_what_the_host_does(prompt: Sequence[int], penalties: dict[str, float]) -> None:
    made = spec(prompt_ids=prompt, output_ids=(7, 9, 7), logit_bias=((7, 2.0), (7, 0.5), (3, -1.0)), **penalties)
    logits = np.random.default_rng(1).standard_normal(VOCAB).astype(np.float32)
    lists, out = list_penalties(made, VOCAB), logits.copy()
    params = made.params
    for token, count in zip(lists.ids, lists.counts, strict=True):
        value = out[token]
        value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        if count:
            value -= count * params.frequency_penalty + params.presence_penalty
        out[token] = value
    out[lists.bias_ids] += lists.biases
    assert out == pytest.approx(adjust_logits(logits, made), abs=1e-6)
