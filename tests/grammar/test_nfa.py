from __future__ import annotations

from sglang_lite.grammar.automata import build_nfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import Bytes, Grammar, Special, alternate, concat


def test_special_tokens_are_columns_behind_the_byte_classes() -> None:
    nfa = build_nfa(Grammar(alternate([concat([Bytes(b"a"), Special(7)]), Special(9), Special(7)])))
    assert sorted(nfa.special_ids.tolist()) == [7, 9]
    assert nfa.num_columns == nfa.num_classes + 2
    assert nfa.class_byte[nfa.num_classes :].tolist() == [-1, -1]
    assert nfa.inner_high.max() == nfa.num_columns - 1


def test_classes_are_ranges_in_ascending_order() -> None:
    """Slices step through the classes of a range of bytes."""
    nfa = build_nfa(parse_regex("[b-d]|[c-x]y|é"))
    assert (nfa.byte_class[1:].astype(int) - nfa.byte_class[:-1] >= 0).all()


def test_memory_counts_every_array() -> None:
    small, large = (build_nfa(parse_regex(pattern)).num_bytes for pattern in ("a", "a{1000}"))
    assert large > small + 1000 * 8
