"""Sets of numbers as texts: exactly their members, among the texts of plain decimals."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.number_text import NumberTexts, spelled_number
from sglang_lite.grammar.json_schema.numeric import ALL_NUMBERS, NumberSet, meet_numbers
from sglang_lite.grammar.syntax import Grammar, Node
from tests.grammar.json_schema.test_numeric import SETS
from tests.support.grammar_oracle import recognises


def _grammar(one: NumberSet) -> Grammar:
    rules: dict[str, Node] = {}
    return Grammar(NumberTexts(6, 6).node(one), rules)


TEXTS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?\Z")


@settings(max_examples=300)
@given(SETS, TEXTS)
@example(NumberSet(low=Fraction(5, 2), low_open=True, high=Fraction(11, 4)), "2.75")
def test_a_plain_decimal_is_a_text_of_a_set_exactly_if_it_is_a_member(one: NumberSet, text: str) -> None:
    """Whole numbers are written without a point, listed ones shortest, and bounded ones never as `-0`."""
    settled = meet_numbers(one, ALL_NUMBERS)
    if settled is None:
        return
    try:
        grammar = _grammar(settled)
    except UnsupportedGrammarError:
        assert settled.other_multiples, "only the contrary of some multiples is refused here"
        return
    found = recognises(grammar, text)
    if Fraction(text) not in one:
        assert not found
    elif text.lstrip("-") != "0" or not text.startswith("-"):
        plain = "." not in text or (
            settled.integral is not True and settled.values is None and not text.startswith("-0.0")
        )
        assert (
            found
            or not plain
            or (settled.values is not None and text.encode() not in spelled_number(Fraction(text)))
            or Fraction(text) == 0
        )


def test_multiples_with_many_remainders_are_refused() -> None:
    with pytest.raises(UnsupportedGrammarError, match="multipleOf 7919"):
        _grammar(NumberSet(multiples=frozenset([Fraction(7919)])))


def test_multiples_by_remainder() -> None:
    grammar = _grammar(NumberSet(integral=True, multiples=frozenset([Fraction(7)])))
    assert [n for n in range(-50, 50) if recognises(grammar, str(n))] == list(range(-49, 50, 7))
    grammar = _grammar(NumberSet(multiples=frozenset([Fraction(3, 2)])))
    assert [text for text in ("0", "1.5", "3", "3.0", "4.50", "-1.5", "1", "2.5") if recognises(grammar, text)] == [
        "0",
        "1.5",
        "3",
        "3.0",
        "4.50",
        "-1.5",
    ]


def test_long_numbers_are_written_plainly_and_as_floats() -> None:
    assert spelled_number(Fraction(5, 2)) == [b"2.5"]
    assert spelled_number(Fraction(10**20)) == [b"100000000000000000000", b"1e+20"]
    assert spelled_number(Fraction(10**400)) == [str(10**400).encode()] * 2
