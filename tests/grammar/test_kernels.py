from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.kernels import (
    DEAD,
    FULL_CELLS,
    FULL_CLOSURE,
    FULL_ITEMS,
    FULL_SCRATCH,
    FULL_STATES,
    UNKNOWN,
    DfaTables,
    advance,
    advance_known,
    expand,
    follow_forced,
    only_byte,
    rehash,
    start_state,
)
from sglang_lite.grammar.nfa import ByteNfa
from tests.grammar.raw_tables import NESTED, tables


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
    assert advance_known(start, data, 0, 2, nfa.byte_class, dfa.row_of, dfa.only, dfa.blocks, dfa.targets) == UNKNOWN
    assert advance(start, data, 0, 2, nfa, dfa) == DEAD
    assert advance_known(start, data, 0, 2, nfa.byte_class, dfa.row_of, dfa.only, dfa.blocks, dfa.targets) == DEAD


def test_full_tables_are_reported_and_keep_what_they_hold() -> None:
    nfa, dfa = tables("abc", states=2)
    start = start_state(nfa, dfa)
    assert run(start, b"abc", nfa, dfa) == FULL_STATES
    assert run(start, b"a", nfa, dfa) == 1
    nfa, dfa = tables("abc", items=2)
    start = start_state(nfa, dfa)
    assert run(start, b"abc", nfa, dfa) == FULL_ITEMS
    assert expand(start + 1, start + 2, nfa, dfa) == FULL_ITEMS


def test_every_kind_of_room_is_reported_by_its_own_code() -> None:
    nfa, dfa = tables("a(b|c)*d")
    assert start_state(nfa, dfa._replace(scratch=np.zeros(0, np.int64))) == FULL_SCRATCH
    nfa, dfa = tables("a?b?c?d?")
    tight = dfa._replace(seen_keys=np.zeros(2, np.int64), seen_marks=np.zeros(2, np.int64), stack=np.zeros(2, np.int64))
    assert start_state(nfa, tight) == FULL_CLOSURE
    nfa, dfa = tables(NESTED, cells=3)
    start = start_state(nfa, dfa)
    assert dfa.accepting[run(start, b"((x))", nfa, dfa)] == 1
    assert run(start, b"(((", nfa, dfa) == FULL_CELLS


def test_equal_stacks_are_one_cell() -> None:
    nfa, dfa = tables(NESTED)
    start = start_state(nfa, dfa)
    assert run(start, b"((x)", nfa, dfa) == run(start, b"(x", nfa, dfa)
    assert dfa.counters[2] == 3


def test_rehashed_states_are_found_again() -> None:
    nfa, dfa = tables("[ab]{0,20}")
    start = start_state(nfa, dfa)
    end = run(start, b"ab" * 10, nfa, dfa)
    count = int(dfa.counters[0])
    empty = np.full(1024, -1, np.int32)
    dfa = dfa._replace(buckets=empty, cell_buckets=empty.copy(), targets=np.full_like(dfa.targets, UNKNOWN))
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


def test_an_item_reached_twice_is_kept_once() -> None:
    nfa, dfa = tables("a")
    doubled = nfa._replace(
        call_offsets=nfa.call_offsets * 2,
        call_inner=np.repeat(nfa.call_inner, 2),
        call_return=np.repeat(nfa.call_return, 2),
    )
    state = start_state(doubled, dfa)
    assert dfa.set_offsets[state + 1] - dfa.set_offsets[state] == 1
