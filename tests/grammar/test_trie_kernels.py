from __future__ import annotations

import numpy as np

from sglang_lite.grammar.kernels import start_state
from sglang_lite.grammar.nfa import Int32Array
from sglang_lite.grammar.trie_kernels import TrieArrays, check_trie, lay_out_trie, walk
from tests.grammar.raw_tables import tables


def trie_of(tokens: list[bytes]) -> tuple[TrieArrays, np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, tokens)]).astype(np.int32)
    data = np.frombuffer(b"".join(tokens), np.uint8).copy()
    room = len(data)
    trie = TrieArrays(
        byte=np.zeros(room, np.uint8),
        depth=np.zeros(room, np.int32),
        skip=np.zeros(room, np.int32),
        token=np.zeros(room, np.int32),
        next_same=np.full(len(tokens), -1, np.int32),
        max_depth=max(map(len, tokens)),
    )
    order = np.array(sorted(range(len(tokens)), key=tokens.__getitem__), np.int32)
    count = lay_out_trie(order, data, offsets, trie)
    return (
        trie._replace(**{name: getattr(trie, name)[:count].copy() for name in ("byte", "depth", "skip", "token")}),
        data,
        offsets,
    )


def whole(trie: TrieArrays) -> Int32Array:
    return np.array([0, len(trie.byte)], np.int32)


def test_a_trie_holds_every_token_once_duplicates_included() -> None:
    tokens = [b"b", b"ab", b"abc", b"ab", b"a", b"x\x00", b"ab"]
    trie, data, offsets = trie_of(tokens)
    seen = np.zeros(len(tokens), np.uint8)
    assert check_trie(trie, data, offsets, seen) == -1
    assert seen.all()
    assert len(trie.byte) == 6
    assert trie.next_same.tolist() == [-1, 3, -1, 6, -1, -1, -1]
    assert trie.skip[-1] == len(trie.byte)


def test_a_damaged_trie_is_noticed() -> None:
    trie, data, offsets = trie_of([b"ab", b"ac"])
    trie.byte[1] += 1
    assert check_trie(trie, data, offsets, np.zeros(2, np.uint8)) == 0


def test_a_walk_allows_exactly_the_tokens_that_stay_alive() -> None:
    tokens = [b"b", b"ab", b"abc", b"ab", b"a", b"abd", b"aa"]
    trie, _, _ = trie_of(tokens)
    nfa, dfa = tables("ab*c")
    words = np.zeros(1, np.int32)
    assert walk(start_state(nfa, dfa), whole(trie), trie, words, nfa, dfa) == 4
    assert [i for i in range(32) if words[0] >> i & 1] == [1, 2, 3, 4]


def test_a_walk_can_set_the_sign_bit() -> None:
    trie, _, _ = trie_of([bytes([i]) for i in range(64)])
    nfa, dfa = tables(r"[\x1f\x3f]")
    words = np.zeros(2, np.int32)
    walk(start_state(nfa, dfa), whole(trie), trie, words, nfa, dfa)
    assert words.view(np.uint32).tolist() == [1 << 31, 1 << 31]
