"""Token keys."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from sglang_lite.runtime.memory.tree_node import common_tokens, token_key

ids = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), max_size=12)


@given(ids, st.integers(0, 12), st.integers(0, 12))
def test_a_key_does_not_depend_on_the_kind_of_sequence(tokens: list[int], start: int, stop: int) -> None:
    key = token_key(tokens, start, stop)
    assert len(key) == 4 * len(tokens[start:stop])
    assert key == token_key(tuple(tokens), start, stop)
    assert key == token_key(np.array(tokens, dtype=np.int32), start, stop)
    assert key == token_key(np.array(tokens, dtype=np.int64), start, stop)


@given(ids, ids)
def test_common_tokens_counts_the_longest_common_prefix(a: list[int], b: list[int]) -> None:
    expected = 0
    while expected < min(len(a), len(b)) and a[expected] == b[expected]:
        expected += 1
    assert common_tokens(token_key(a, 0, 99), token_key(b, 0, 99)) == expected


@given(ids, ids)
def test_keys_sort_as_their_tokens_do(a: list[int], b: list[int]) -> None:
    assert (token_key(a, 0, 99) < token_key(b, 0, 99)) == (a < b)


def test_a_token_id_beyond_32_bits_is_refused() -> None:
    with pytest.raises(struct.error):
        token_key([2**40], 0, 1)
