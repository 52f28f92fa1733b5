from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.automata import build_nfa
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import DEAD
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.tables import LazyTables


def tables_of(pattern: str, max_bytes: int = 1 << 24) -> LazyTables:
    return LazyTables(build_nfa(parse_regex(pattern)), max_bytes=max_bytes)


def after(tables: LazyTables, text: bytes) -> int:
    return tables.advance(tables.start, np.frombuffer(text, np.uint8).copy(), 0, len(text))


def test_states_are_found_when_they_are_needed() -> None:
    tables = tables_of("[ab]{500}")
    assert tables.num_states == 1
    after(tables, b"abab")
    assert tables.num_states == 5


def test_tables_grow_without_losing_or_renaming_states() -> None:
    tables = tables_of("(a?b?){1,400}c")
    states = [after(tables, b"ab" * count) for count in range(300)]
    before = tables.num_bytes
    assert [after(tables, b"ab" * count) for count in range(300)] == states
    assert len(set(states)) == 300
    assert tables.num_bytes == before
    assert tables.is_accepting(after(tables, b"abc"))


def test_states_found_before_growth_are_found_again_after_it() -> None:
    tables = tables_of("[ab]{300}|[ac]{300}")
    by_b = [after(tables, b"b" * count) for count in range(1, 301)]
    assert [after(tables, b"ab" + b"a" * (count - 2)) for count in range(2, 301)] == by_b[1:]


def test_memory_has_a_limit_and_what_was_found_stays() -> None:
    tables = tables_of("(a|b)*a(a|b){14}", max_bytes=200_000)
    first = after(tables, b"ab")
    text = np.random.default_rng(0).choice([97, 98], 30_000).astype(np.uint8).tobytes()
    with pytest.raises(GrammarTooLargeError, match="200000 bytes"):
        after(tables, text)
    assert after(tables, b"ab") == first


def test_a_forced_run_may_be_longer_than_the_room_of_one_call() -> None:
    run = tables_of("x{1000}(y|z)").forced(0)
    assert run.data == b"x" * 1000
    assert run.state != DEAD


def test_dead_stays_dead() -> None:
    tables = tables_of("a")
    assert tables.advance(DEAD, np.zeros(1, np.uint8), 0, 1) == DEAD
    assert not tables.is_accepting(DEAD)
    assert tables_of("a^").start == DEAD


def test_a_row_lists_the_next_state_of_every_class() -> None:
    tables = tables_of("a|b")
    targets = tables.row(tables.start)
    assert len(targets) == tables.nfa.num_classes
    assert targets[tables.nfa.byte_class[ord("a")]] == after(tables, b"a")
    assert targets[tables.nfa.byte_class[ord("c")]] == DEAD
