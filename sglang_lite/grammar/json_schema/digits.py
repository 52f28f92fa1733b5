"""Decimal numbers between bounds as texts; knows no schema. Bounds are magnitudes of at least 0; signs are the caller's."""

from __future__ import annotations

from fractions import Fraction

from sglang_lite.grammar.charset import CharSet
from sglang_lite.grammar.json_schema.languages import any_node
from sglang_lite.grammar.syntax import EMPTY, NEVER, Both, Bytes, Chars, Node, concat, repeat

DIGIT = Chars(CharSet(((0x30, 0x39),)))
NONZERO = Chars(CharSet(((0x31, 0x39),)))
ZERO = Bytes(b"0")
DOT = Bytes(b".")


def digits_from(low: int, high: int) -> Node:
    """One digit from `low` to `high`; NEVER if there is none."""
    return Chars(CharSet(((0x30 + low, 0x30 + high),))) if low <= high else NEVER


def decimal_text(value: Fraction) -> str:
    """The shortest decimal text of a number with a finite one, without an exponent."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    scaled = abs(value.numerator * 10**places // value.denominator)
    text = str(scaled).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (text if places == 0 else f"{text[:-places]}.{text[-places:]}")


def whole_between(low: int, high: int) -> Node:
    """The whole numbers from `low` to `high`, without leading zeros."""
    if low > high:
        return NEVER
    options: list[Node] = [ZERO] if low == 0 else []
    low = max(low, 1)
    full: list[int] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
        if first > last:
            continue
        if first == 10 ** (length - 1) and last == 10**length - 1:
            full.append(length)
        else:
            options.append(_same_length(str(first), str(last)))
    if full:
        options.append(concat([NONZERO, repeat(DIGIT, full[0] - 1, full[-1] - 1)]))
    return any_node(options)


def _same_length(low: str, high: str) -> Node:
    size = len(low)
    if not size:
        return EMPTY
    if low == "0" * size and high == "9" * size:
        return repeat(DIGIT, size, size)
    first, last = int(low[0]), int(high[0])
    if first == last:
        return concat([Bytes(low[0].encode()), _same_length(low[1:], high[1:])])
    return any_node(
        [
            concat([Bytes(low[0].encode()), _same_length(low[1:], "9" * (size - 1))]),
            _then(digits_from(first + 1, last - 1), repeat(DIGIT, size - 1, size - 1)),
            concat([Bytes(high[0].encode()), _same_length("0" * (size - 1), high[1:])]),
        ]
    )


class Decimals:
    """Texts of decimal numbers with at most `whole` digits before the point and about `fraction` behind it."""

    def __init__(self, whole: int, fraction: int) -> None:
        self.whole = whole
        self.fraction = fraction

    @property
    def any_fraction(self) -> Node:
        """A point and digits, or nothing."""
        return repeat(concat([DOT, repeat(DIGIT, 1, self.fraction)]), 0, 1)

    @property
    def true_fraction(self) -> Node:
        """A point and digits that are not all 0."""
        return concat([DOT, self._not_zero()])

    def between(self, low: Fraction, low_open: bool, high: Fraction | None, high_open: bool) -> Node:
        """The decimal numbers from `low` to `high`; an open bound itself is left out."""
        first, first_digits = _split(low)
        if high is None:
            last, last_digits = 10**self.whole, ""
            high_open = True
        else:
            last, last_digits = _split(high)
        if first == last:
            above, below = self._at_least(first_digits, low_open), self._at_most(last_digits, high_open)
            return _then(Bytes(str(first).encode()), _both(above, below))
        return any_node(
            [
                _then(Bytes(str(first).encode()), self._at_least(first_digits, low_open)),
                _then(whole_between(first + 1, last - 1), self.any_fraction),
                _then(Bytes(str(last).encode()), self._at_most(last_digits, high_open)),
            ]
        )

    def _digits(self, low: int) -> Node:
        return repeat(DIGIT, low, self.fraction)

    def _not_zero(self) -> Node:
        return concat([repeat(ZERO, 0, self.fraction), NONZERO, self._digits(0)])

    def _at_least(self, digits: str, open_: bool) -> Node:
        """The fraction parts of at least `0.digits`."""
        if not digits:
            return self.true_fraction if open_ else self.any_fraction
        return concat([DOT, self._digits_above(digits, open_)])

    def _digits_above(self, digits: str, open_: bool) -> Node:
        if not digits:
            return self._not_zero() if open_ else self._digits(0)
        first = int(digits[0])
        same = concat([Bytes(digits[0].encode()), self._digits_above(digits[1:], open_)])
        return any_node([_then(digits_from(first + 1, 9), self._digits(0)), same])

    def _at_most(self, digits: str, open_: bool) -> Node:
        """The fraction parts of at most `0.digits`."""
        if not digits:
            return NEVER if open_ else repeat(concat([DOT, repeat(ZERO, 1, self.fraction)]), 0, 1)
        return repeat(concat([DOT, self._digits_below(digits, open_)]), 0, 1)

    def _digits_below(self, digits: str, open_: bool) -> Node:
        """One digit at least, in all at most `digits`."""
        if not digits:
            return NEVER if open_ else repeat(ZERO, 1, self.fraction)
        first, rest = int(digits[0]), digits[1:]
        same = Bytes(digits[0].encode())
        ended = NEVER if not rest and open_ else same
        longer = _then(same, self._digits_below(rest, open_))
        return any_node([_then(digits_from(0, first - 1), self._digits(0)), ended, longer])


def _split(value: Fraction) -> tuple[int, str]:
    whole, _, digits = decimal_text(value).partition(".")
    return int(whole), digits


def _then(head: Node, tail: Node) -> Node:
    return NEVER if NEVER in (head, tail) else concat([head, tail])


def _both(left: Node, right: Node) -> Node:
    return NEVER if NEVER in (left, right) else Both(left, right)
