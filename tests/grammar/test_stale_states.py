"""Tables that begin anew where they outgrow what is kept: nobody notices but by the clock."""

from __future__ import annotations

import random

import pytest

from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.tables import StaleStateError
from tests.grammar.toy import brute_force_ids, toy_vocab

PATTERN = "([ab]{0,300}c|(ab|ba|cat|category){0,40}!)*"


def test_a_small_room_gives_the_same_masks_as_a_large_one() -> None:
    small = GrammarMatcher(GrammarCompiler(toy_vocab(), kept_bytes=1).compile_regex(PATTERN))
    small.compiled._tables._keep_bytes = 1
    large = GrammarMatcher(GrammarCompiler(toy_vocab()).compile_regex(PATTERN))
    pick = random.Random(4)
    for step in range(120):
        allowed = large.allowed_ids()
        assert small.allowed_ids() == allowed
        assert small.is_accepting == large.is_accepting
        assert small.forced_bytes() == large.forced_bytes()
        token = pick.choice([i for i in allowed if i > 2])
        assert small.accept_token(token)
        assert large.accept_token(token)
        if step % 17 == 0:
            assert small.fork().allowed_ids() == large.allowed_ids()
        if step % 23 == 22:
            small.rollback(5)
            large.rollback(5)
        small.compiled._tables._keep_bytes = 1
    assert small.compiled._tables._base > 0
    assert large.compiled._tables._base == 0
    assert brute_force_ids(large) == small.allowed_ids()


def test_a_state_of_tables_that_began_anew_is_told_from_a_new_one() -> None:
    compiled = GrammarCompiler(toy_vocab()).compile_regex("[ab]{20}")
    old = compiled.advance_bytes(compiled.start_state, b"aa")
    compiled._tables._keep_bytes = 1
    with pytest.raises(StaleStateError):
        compiled.advance_bytes(old, b"b" * 9)
    assert compiled.start_state > old
    with compiled._tables.pinned():
        here = compiled.advance_bytes(compiled.start_state, b"aa")
        assert compiled.advance_bytes(here, b"b" * 18) >= 0


def test_equal_masks_are_held_once() -> None:
    compiled = GrammarCompiler(toy_vocab()).compile_regex("[ab]{200}")
    states = [compiled.advance_bytes(compiled.start_state, b"a" * count) for count in range(100)]
    masks = [compiled.mask(state).words for state in states]
    assert compiled.statistics().masks == 100
    assert compiled.statistics().mask_bytes == masks[0].nbytes
    assert len({id(mask) for mask in masks}) == 1


def test_a_grammar_whose_automaton_takes_all_room_keeps_few_masks() -> None:
    row = toy_vocab().eos_words.nbytes
    pattern = GrammarCompiler(toy_vocab(), kept_bytes=1).compile_regex("0a1b2c3d4e5f6g7h8i9jAkBlCmDnE")
    for at in range(29):
        state = pattern.advance_bytes(pattern.start_state, b"0a1b2c3d4e5f6g7h8i9jAkBlCmDnE"[:at])
        pattern.mask(state)
    assert pattern.statistics().mask_bytes == 16 * row
