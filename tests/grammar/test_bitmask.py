from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.bitmask import (
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
    bitmask_shape,
    ids_to_words,
    words_to_flags,
)
from sglang_lite.grammar.errors import InvalidBitmaskError


@pytest.mark.parametrize(("vocab_size", "words"), [(1, 1), (32, 1), (33, 2), (49152, 1536)])
def test_a_row_has_one_bit_for_each_token(vocab_size: int, words: int) -> None:
    assert bitmask_shape(3, vocab_size) == (3, words)
    bitmask = allocate_token_bitmask(3, vocab_size)
    assert bitmask.shape == (3, words)
    assert bitmask.dtype == np.int32
    assert (bitmask == -1).all()


def test_bit_i_of_word_w_is_token_32w_plus_i() -> None:
    words = ids_to_words([0, 31, 33, 69], 70)
    assert words.dtype == np.int32
    assert words.view(np.uint32).tolist() == [0x80000001, 2, 32]
    assert np.flatnonzero(words_to_flags(words, 70)).tolist() == [0, 31, 33, 69]
    assert words_to_flags(words, 200).sum() == 4


def test_tokens_that_are_not_allowed_become_minus_infinity_in_place() -> None:
    logits = np.arange(12, dtype=np.float32).reshape(3, 4)
    bitmask = np.stack([ids_to_words(ids, 4) for ids in ([1], [0, 3], [])])
    apply_token_bitmask_inplace(logits, bitmask)
    low = -np.inf
    assert logits.tolist() == [[low, 1, low, low], [4, low, low, 7], [low] * 4]


def test_rows_that_are_not_named_stay_untouched() -> None:
    logits = np.zeros((3, 4), np.float32)
    apply_token_bitmask_inplace(logits, np.zeros((3, 1), np.int32), indices=[1])
    assert np.isinf(logits).all(axis=1).tolist() == [False, True, False]


def test_logits_wider_than_the_mask_lose_the_rest() -> None:
    logits = np.zeros((1, 40), np.float32)
    apply_token_bitmask_inplace(logits, allocate_token_bitmask(1, 32))
    assert np.isinf(logits[0]).tolist() == [False] * 32 + [True] * 8


def test_wrong_arrays_are_refused() -> None:
    bitmask = allocate_token_bitmask(2, 4)
    for logits in (np.zeros(4, np.float32), np.zeros((2, 4), np.float64)):
        with pytest.raises(InvalidBitmaskError, match="float32"):
            apply_token_bitmask_inplace(logits, bitmask)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidBitmaskError, match="row 2"):
        apply_token_bitmask_inplace(np.zeros((3, 4), np.float32), bitmask)
