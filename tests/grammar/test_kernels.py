from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.automata import ByteNfa, build_nfa
from sglang_lite.grammar.kernels import (
    DEAD,
    FULL_ITEMS,
    FULL_STATES,
    UNKNOWN,
    DfaTables,
    TrieArrays,
    advance,
    advance_known,
    check_trie,
    expand,
    follow_forced,
    lay_out_trie,
    only_byte,
    rehash,
    start_state,
    walk,
)
from sglang_lite.grammar.regex import parse_regex


def tables(pattern: str, *, states: int = 64, items: int = 256) -> tuple[ByteNfa, DfaTables]:
    nfa = build_nfa(parse_regex(pattern))
    dfa = DfaTables(
        transitions=np.full((states, nfa.num_classes), UNKNOWN, np.int32),
        set_offsets=np.zeros(states + 1, np.int32),
        set_items=np.zeros(items, np.int32),
        accepting=np.zeros(states, np.uint8),
        buckets=np.full(4 * states, -1, np.int32),
        counters=np.zeros(2, np.int64),
        marks=np.zeros(nfa.num_states, np.int64),
        scratch=np.zeros(nfa.max_items, np.int32),
        stack=np.zeros(nfa.num_states + 1, np.int32),
    )
    return nfa, dfa


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


def run(state: int, text: bytes, nfa: ByteNfa, dfa: DfaTables) -> int:
    return advance(state, np.frombuffer(text, np.uint8).copy(), 0, len(text), nfa, dfa)


def test_equal_sets_are_one_state() -> None:
    nfa, dfa = tables("(a|b)*c")
    start = start_state(nfa, dfa)
    after_a = run(start, b"a", nfa, dfa)
    assert run(start, b"ab", nfa, dfa) == run(start, b"bba", nfa, dfa) == run(start, b"b", nfa, dfa) == after_a
    assert run(start, b"cx", nfa, dfa) == DEAD
    assert dfa.accepting[run(start, b"c", nfa, dfa)] == 1
    assert dfa.accepting[start] == 0


def test_unknown_transitions_are_told_from_dead_ones() -> None:
    nfa, dfa = tables("ab")
    start = start_state(nfa, dfa)
    data = np.frombuffer(b"ax", np.uint8).copy()
    assert advance_known(start, data, 0, 2, nfa.byte_class, dfa.transitions) == UNKNOWN
    assert advance(start, data, 0, 2, nfa, dfa) == DEAD
    assert advance_known(start, data, 0, 2, nfa.byte_class, dfa.transitions) == DEAD


def test_full_tables_are_reported_and_keep_what_they_hold() -> None:
    nfa, dfa = tables("abc", states=2)
    start = start_state(nfa, dfa)
    assert run(start, b"abc", nfa, dfa) == FULL_STATES
    assert run(start, b"a", nfa, dfa) == 1
    nfa, dfa = tables("abc", items=2)
    start = start_state(nfa, dfa)
    assert run(start, b"abc", nfa, dfa) == FULL_ITEMS
    assert expand(start + 1, nfa, dfa) == FULL_ITEMS


def test_rehashed_states_are_found_again() -> None:
    nfa, dfa = tables("[ab]{0,20}")
    start = start_state(nfa, dfa)
    end = run(start, b"ab" * 10, nfa, dfa)
    count = int(dfa.counters[0])
    dfa = dfa._replace(buckets=np.full(1024, -1, np.int32), transitions=np.full_like(dfa.transitions, UNKNOWN))
    rehash(dfa)
    assert run(start, b"ba" * 10, nfa, dfa) == end
    assert dfa.counters[0] == count


@pytest.mark.parametrize(
    ("pattern", "byte"),
    [("a", ord("a")), ("[ab]", -1), ("a|ac|ad", ord("a")), ("a?", -1), ("", -1), ("猫|狗", "猫".encode()[0])],
)
def test_only_byte_is_the_single_way_on(pattern: str, byte: int) -> None:
    nfa, dfa = tables(pattern)
    assert only_byte(start_state(nfa, dfa), nfa, dfa) == byte


def test_forced_bytes_stop_at_a_choice_an_end_and_a_full_room() -> None:
    nfa, dfa = tables("abc(d|e)fg")
    room = np.zeros(8, np.uint8)
    count, state, code = follow_forced(start_state(nfa, dfa), room, nfa, dfa)
    assert (room[:count].tobytes(), code) == (b"abc", 0)
    count, _, _ = follow_forced(run(state, b"d", nfa, dfa), room, nfa, dfa)
    assert room[:count].tobytes() == b"fg"
    assert follow_forced(start_state(nfa, dfa), room[:2], nfa, dfa)[0] == 2


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
    words = np.full(1, -1, np.int32)
    assert walk(start_state(nfa, dfa), trie, words, nfa, dfa) == 4
    assert [i for i in range(32) if words[0] >> i & 1] == [1, 2, 3, 4]


def test_a_walk_can_set_the_sign_bit() -> None:
    trie, _, _ = trie_of([bytes([i]) for i in range(64)])
    nfa, dfa = tables(r"[\x1f\x3f]")
    words = np.zeros(2, np.int32)
    walk(start_state(nfa, dfa), trie, words, nfa, dfa)
    assert words.view(np.uint32).tolist() == [1 << 31, 1 << 31]


def test_an_item_reached_twice_is_kept_once() -> None:
    nfa, dfa = tables("a")
    doubled = nfa._replace(
        call_offsets=nfa.call_offsets * 2,
        call_inner=np.repeat(nfa.call_inner, 2),
        call_return=np.repeat(nfa.call_return, 2),
    )
    dfa = dfa._replace(scratch=np.zeros(doubled.max_items, np.int32))
    state = start_state(doubled, dfa)
    assert dfa.set_offsets[state + 1] - dfa.set_offsets[state] == 1
