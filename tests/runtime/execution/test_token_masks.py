"""Masks of one request: the constraint's, without the ends that come too early."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.runtime.execution.token_masks import TokenMasks, dead_end
from tests.runtime.execution.support import AllowedTokens, spec

VOCAB = 40


def bits(words: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:VOCAB]).tolist()


def fill(made: object, eos_ids: tuple[int, ...] = (1,)) -> list[int] | None:
    masks = TokenMasks(VOCAB, eos_ids)
    bitmask = np.zeros((3, masks.num_words), dtype=np.int32)
    has_mask = masks.fill(made, bitmask, 1, "drawing")  # type: ignore[arg-type]
    assert not bitmask[[0, 2]].any(), "other rows are not written"
    return bits(bitmask[1]) if has_mask else None


def test_a_request_without_a_constraint_has_no_mask() -> None:
    assert fill(spec()) is None
    assert fill(spec(min_new_tokens=2, output_ids=(5, 6))) is None


def test_ends_are_taken_out_while_tokens_are_missing() -> None:
    got = fill(spec(min_new_tokens=2, output_ids=(5,), stop_token_ids=(33, VOCAB + 9)))
    assert got == [token for token in range(VOCAB) if token not in (1, 33)]
    assert fill(spec(min_new_tokens=2, grammar=AllowedTokens([1, 7, 33]))) == [7, 33]
    assert fill(spec(min_new_tokens=2, grammar=AllowedTokens([1]))) == [1], "where only the end can follow, it may"


def test_a_constraint_whose_tables_are_full_fails_by_name() -> None:
    class Full(AllowedTokens):
        def fill_bitmask(self, bitmask: object, index: int = 0) -> None:
            raise ValueError("the tables are full")

    with pytest.raises(ExecutionError, match=r"drawing under .*: the tables are full"):
        fill(spec(grammar=Full([])))


@pytest.mark.parametrize(
    ("vocab", "token", "expected"), [(40, 39, True), (40, 40, False), (64, 63, True), (64, 0, True)]
)
def test_a_mask_of_tokens_beyond_the_vocabulary_allows_none(vocab: int, token: int, expected: bool) -> None:
    masks = TokenMasks(vocab)
    words = np.zeros(masks.num_words, dtype=np.int32)
    words.view(np.uint32)[token // 32] = np.uint32(1) << np.uint32(token % 32)
    assert masks.has_any(words) == expected
    assert not masks.has_any(np.zeros_like(words))


def test_a_dead_end_names_the_constraint() -> None:
    error = dead_end(spec(regex="a+").params, "drawing")
    assert isinstance(error, DeadEndError)
    assert "continues the regex 'a+'" in str(error)
