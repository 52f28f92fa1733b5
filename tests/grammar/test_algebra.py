from __future__ import annotations

import itertools
import re

import interegular
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglang_lite.grammar.algebra import determinised, difference, intersection
from sglang_lite.grammar.automata import are_disjoint, build_nfa, is_empty, is_subset
from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import NEVER, Bytes, Grammar, Node, both, choices, concat, repeat, without
from tests.grammar.patterns import patterns, texts
from tests.grammar.recursive import grammar

P = parse_regex


def compiled(node: Node) -> CompiledGrammar:
    return grammar(repr(node), Grammar(node))


def accepts(dfa: ByteDfa | None, text: str) -> bool:
    if dfa is None:
        return False
    state, accepted = 0, dfa.accepts_empty
    for byte in text.encode():
        if state < 0:
            return False
        row = dfa.edges[dfa.offsets[state] : dfa.offsets[state + 1]]
        hits = row[(row[:, 0] <= byte) & (byte <= row[:, 1])]
        assert len(hits) <= 1
        if not len(hits):
            return False
        state, accepted = int(hits[0, 2]), bool(hits[0, 3])
    return accepted


def matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


@given(patterns, patterns, st.lists(texts, min_size=1, max_size=8))
def test_products_and_differences_are_those_of_the_sets(left: str, right: str, samples: list[str]) -> None:
    meet, rest = compiled(both(P(left), P(right))), compiled(without(P(left), P(right)))
    for text in samples:
        assert meet.accepts(text) == (matches(left, text) and matches(right, text))
        assert rest.accepts(text) == (matches(left, text) and not matches(right, text))


@given(patterns, patterns, st.lists(texts, min_size=1, max_size=5))
def test_products_inside_a_larger_text(left: str, right: str, samples: list[str]) -> None:
    """The result is an edge like any other: repeated, followed and preceded by other text."""
    part = without(P(left), P(right))
    made = compiled(concat([Bytes(b"<"), repeat(part, 1, 2), Bytes(b">")]))
    for text in samples:
        cuts = [(text[:at], text[at:]) for at in range(len(text) + 1)]
        inside = {piece: matches(left, piece) and not matches(right, piece) for cut in cuts for piece in cut}
        expected = inside[text] or any(inside[head] and inside[tail] for head, tail in cuts)
        assert made.accepts(f"<{text}>") == expected


@given(patterns, st.lists(texts, min_size=1, max_size=8))
def test_a_determinised_automaton_has_the_same_texts(pattern: str, samples: list[str]) -> None:
    dfa = determinised(build_nfa(P(pattern)))
    for text in samples:
        assert accepts(dfa, text) == matches(pattern, text)


@given(patterns)
def test_every_state_of_a_result_lives(pattern: str) -> None:
    dfa = determinised(build_nfa(P(pattern)))
    assume(dfa is not None)
    assert dfa is not None
    good = np.zeros(len(dfa.offsets) - 1, np.bool_)
    owners = np.repeat(np.arange(len(good)), np.diff(dfa.offsets))
    for _ in good:
        leads = (dfa.edges[:, 3] == 1) | ((dfa.edges[:, 2] >= 0) & good[dfa.edges[:, 2]])
        good[owners[leads]] = True
    assert good[1:].all()
    assert good[0] or dfa.accepts_empty


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("[a-z]{2,5}", "a.*"),
        ("[ab]*a[ab]{3}", "[ab]*b[ab]{2}"),
        ("(a|b|c)*", "(ab|c)*"),
        ("x[0-9]+", "y[0-9]+"),
        ("(ab)+", "a(ba)*b"),
    ],
)
def test_disjointness_is_that_of_another_library(left: str, right: str) -> None:
    pair = [interegular.parse_pattern(pattern).to_fsm() for pattern in (left, right)]
    assert are_disjoint(P(left), P(right)) == pair[0].isdisjoint(pair[1])
    assert is_subset(P(left), P(right)) == (pair[0] <= pair[1])
    assert is_subset(both(P(left), P(right)), P(left))


def test_all_short_words_by_brute_force() -> None:
    words = ["".join(word) for length in range(5) for word in itertools.product("ab", repeat=length)]
    left, right = r"(ab|a)*b?", r"a*(ba)*"
    meet = intersection(build_nfa(P(left)), build_nfa(P(right)))
    rest = difference(build_nfa(P(left)), build_nfa(P(right)))
    for word in words:
        assert accepts(meet, word) == (matches(left, word) and matches(right, word))
        assert accepts(rest, word) == (matches(left, word) and not matches(right, word))


def test_nesting_of_both_kinds() -> None:
    node = without(both(P("[a-c]+"), P(".{2,3}")), both(P("a.*"), P(".*a")))
    assert compiled(node).accepts("ab")
    assert not compiled(node).accepts("aba")
    assert not compiled(node).accepts("b")


def test_what_has_no_text_is_empty() -> None:
    assert is_empty(NEVER)
    assert is_empty(both(P("a+"), P("b+")))
    assert is_empty(without(P("a{2,4}"), P("a*")))
    assert not is_empty(P(""))
    assert compiled(concat([Bytes(b"x"), both(P("a+"), P("b+"))])).is_empty


def test_lists_are_combined_as_lists() -> None:
    assert both(choices([b"a", b"b"]), choices([b"b", b"c"])) == Bytes(b"b")
    assert without(choices([b"a", b"b"]), Bytes(b"a")) == Bytes(b"b")
    assert without(Bytes(b"a"), Bytes(b"a")) == NEVER


def test_position_tests_in_an_operand_speak_of_its_own_text() -> None:
    searched = concat([P("(?s:.*)"), P("^ab|c$"), P("(?s:.*)")])
    made = compiled(concat([Bytes(b"<"), both(searched, P("[a-c]*")), Bytes(b">")]))
    assert made.accepts("<abab>")
    assert made.accepts("<bc>")
    assert not made.accepts("<bab>")


def test_lengths_and_patterns_together_stay_small() -> None:
    made = compiled(both(P("[a-z]+(-[a-z]+)*"), P(".{3,500}")))
    assert made.accepts("ab-cd" * 50)
    assert not made.accepts("a" * 501)
    assert not made.accepts("a-")
    assert made.statistics().nfa_states <= 3


def test_a_product_has_a_limit() -> None:
    with pytest.raises(GrammarTooLargeError, match="100 deterministic states"):
        is_empty(both(P("(a|b)*a(a|b){9}"), P("(a|b)*")), max_product_states=100)
    with pytest.raises(GrammarTooLargeError, match="1000 deterministic states"):
        is_empty(both(P("(?:a{31})*"), P("(?:a{37})*b?")), max_product_states=1000)
