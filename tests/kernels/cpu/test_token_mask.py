"""The CPU's token mask: equal to the plain definition, on the rows that it is told, whatever runs beside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.kernels.cpu.token_mask import apply_token_mask, list_legal_ids
from sglang_lite.kernels.reference import token_mask as reference

sizes = st.sampled_from([1, 31, 32, 33, 64, 100, 1000])


def case(vocab: int, batch: int, seed: int, words: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Logits and bitmasks; some words are all ones, some all zeros."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((batch, vocab)).astype(np.float32)
    shape = (batch, -(-vocab // 32) if words is None else words)
    bitmask = random.integers(-(2**31), 2**31, shape).astype(np.int32)
    bitmask[random.random(shape) < 0.3] = -1
    bitmask[random.random(shape) < 0.3] = 0
    return logits, bitmask


@given(sizes, st.integers(0, 5), st.integers(0, 99), st.data())
def test_it_is_the_definition_and_other_rows_are_untouched(
    vocab: int, batch: int, seed: int, data: st.DataObject
) -> None:
    logits, bitmask = case(vocab, batch, seed)
    rows = np.array(data.draw(st.lists(st.integers(0, batch - 1), unique=True) if batch else st.just([])), np.int64)
    masked, expected = logits.copy(), logits.copy()
    apply_token_mask(masked, bitmask, rows)
    reference.apply_token_mask(expected, bitmask, rows)
    np.testing.assert_array_equal(masked, expected)
    others = np.setdiff1d(np.arange(batch), rows)
    np.testing.assert_array_equal(masked[others], logits[others])


@pytest.mark.parametrize("words", [0, 1, 2, 5])
def test_a_token_without_a_bit_may_not_come(words: int) -> None:
    logits, bitmask = case(70, 2, 3, words)
    bitmask[:] = -1
    apply_token_mask(logits, bitmask, np.array([1]))
    assert np.isfinite(logits[0]).all()
    assert np.flatnonzero(np.isfinite(logits[1])).tolist() == list(range(min(32 * words, 70)))


def test_threads_may_mask_rows_of_one_batch_at_once() -> None:
    logits, bitmask = case(4000, 16, 5)
    expected = logits.copy()
    reference.apply_token_mask(expected, bitmask, np.arange(16))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: apply_token_mask(logits, bitmask, np.array([row])), range(16)))
    np.testing.assert_array_equal(logits, expected)


@given(sizes, st.integers(0, 99), st.integers(0, 40))
def test_legal_ids_are_the_set_bits_in_order_as_many_as_fit(vocab: int, seed: int, room: int) -> None:
    logits, bitmask = case(vocab, 1, seed)
    reference.apply_token_mask(logits, bitmask, np.array([0]))
    expected = np.flatnonzero(np.isfinite(logits[0]))
    ids = np.full(room, -1, np.int64)
    assert list_legal_ids(bitmask[0], vocab, ids) == len(expected)
    fit = min(room, len(expected))
    assert ids.tolist() == [*expected[:fit].tolist(), *[-1] * (room - fit)]
