"""Decimal intervals as texts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sglang_lite.grammar.json_schema.digits import Decimals, decimal_text, whole_between
from sglang_lite.grammar.syntax import Grammar
from tests.support.grammar_oracle import recognises


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 9), (3, 17), (98, 1003), (100, 999), (7, 7), (250, 2049)])
def test_whole_numbers_between_two_are_all_of_them(low: int, high: int) -> None:
    grammar = Grammar(whole_between(low, high))
    assert [n for n in range(2100) if recognises(grammar, str(n))] == list(range(low, high + 1))
    assert not recognises(grammar, f"0{low}")


@pytest.mark.parametrize("low", ["0", "0.5", "1.25", "9.99", "10"])
@pytest.mark.parametrize("high", ["0.55", "1.25", "1.3", "10", "12.5", None])
@pytest.mark.parametrize("opens", [(False, False), (True, False), (False, True), (True, True)])
def test_decimals_between_two_bounds(low: str, high: str | None, opens: tuple[bool, bool]) -> None:
    least, most = Fraction(low), None if high is None else Fraction(high)
    if most is not None and least > most:
        return  # the set is empty, and its owner knows
    grammar = Grammar(Decimals(3, 4).between(least, opens[0], most, opens[1]))
    for value in (Fraction(n, 200) for n in range(0, 2600, 5)):
        above = value > least or (value == least and not opens[0])
        below = most is None or value < most or (value == most and not opens[1])
        for text in (decimal_text(value), decimal_text(value) + (".0" if value.denominator == 1 else "0")):
            assert recognises(grammar, text) == (above and below), text


def test_decimal_texts_are_shortest() -> None:
    assert [decimal_text(Fraction(text)) for text in ("0.50", "-3", "0.001", "12.0")] == ["0.5", "-3", "0.001", "12"]
