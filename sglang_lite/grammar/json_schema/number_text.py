"""Sets of numbers as JSON writes them: signs, bounds, multiples; knows no schema.

Numbers without a bound may have an exponent. Numbers with one are plain decimals, which loses no value that the limits on digits
leave. Whole numbers have neither a point nor an exponent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from sglang_lite.grammar.charset import CharSet
from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.digits import (
    DIGIT,
    DOT,
    NONZERO,
    ZERO,
    Decimals,
    decimal_text,
    whole_between,
)
from sglang_lite.grammar.json_schema.languages import any_node
from sglang_lite.grammar.json_schema.numeric import NumberSet
from sglang_lite.grammar.syntax import EMPTY, NEVER, Both, Bytes, Chars, Node, Paths, Without, choices, concat, repeat

_MINUS = repeat(Bytes(b"-"), 0, 1)
_MAX_FACTOR = 400
_MAX_PLACES = 4
_MAX_SUFFIXES = 1000
_FEW = 64  # so many whole numbers are listed one by one
_LONGEST_PLAIN = 15


class NumberTexts:
    """Nodes for sets of numbers."""

    def __init__(self, whole: int, fraction: int) -> None:
        self._whole = whole
        self._decimals = Decimals(whole, fraction)
        self._tails: dict[tuple[int, int, int, bool], Node] = {}

    @property
    def any_number(self) -> Node:
        """Every JSON number within the limits on digits, with up to three digits of exponent."""
        exponent = concat([Chars(CharSet(((0x45, 0x45), (0x65, 0x65)))), repeat(_sign(), 0, 1), repeat(DIGIT, 1, 3)])
        return concat([_MINUS, self._any_whole(), self._decimals.any_fraction, repeat(exponent, 0, 1)])

    def node(self, one: NumberSet) -> Node:
        """The texts of the members of `one`.

        Raises:
            UnsupportedGrammarError: a multiple whose remainders have too many states.
        """
        if one == NumberSet():
            return self.any_number
        if one.values is not None:
            return choices(text for value in one.values for text in spelled_number(value))
        listed = one.listed() if one.integral else None
        if listed is not None and len(listed) <= _FEW:
            return choices(text for value in listed for text in spelled_number(value)) if listed else NEVER
        return self._filtered(one, self._interval(one))

    def _interval(self, one: NumberSet) -> Node:
        """The members of the interval of `one`; of its multiples nothing is looked at."""
        options: list[Node] = []
        if one.low is None or one.low < 0:
            above = -one.high if one.high is not None and one.high < 0 else Fraction(0)
            is_open = one.high_open if one.high is not None and one.high < 0 else True
            below = None if one.low is None else -one.low
            found = self._magnitudes(above, is_open, below, one.low_open, integral=one.integral is True)
            options.append(NEVER if found == NEVER else concat([Bytes(b"-"), found]))
        if one.high is None or one.high >= 0:
            above = one.low if one.low is not None and one.low >= 0 else Fraction(0)
            is_open = one.low_open if one.low is not None and one.low >= 0 else False
            options.append(self._magnitudes(above, is_open, one.high, one.high_open, integral=one.integral is True))
        return any_node(options)

    def _magnitudes(
        self, low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, *, integral: bool
    ) -> Node:
        if not integral:
            return self._decimals.between(low, low_open, high, high_open)
        first = int(low) + (1 if low_open or low.denominator != 1 else 0)
        last = 10**self._whole - 1 if high is None else int(high) - (1 if high_open and high.denominator == 1 else 0)
        return whole_between(first, min(last, 10**self._whole - 1))

    def _filtered(self, one: NumberSet, found: Node) -> Node:
        if one.integral is False:
            found = Both(found, concat([_MINUS, self._any_whole(), self._decimals.true_fraction]))
        stride = one.stride if one.multiples else None
        if stride is not None and not (one.integral and stride == 1):
            found = Both(found, self._multiples(stride, integral=one.integral is True))
        for unit in sorted(one.other_multiples):
            if not _ends_decide(unit):
                raise UnsupportedGrammarError(f"the negation of multipleOf {decimal_text(unit)} cannot be enforced")
            found = Without(found, self._multiples(unit, integral=False))
        return found

    def _multiples(self, unit: Fraction, *, integral: bool) -> Node:
        """The multiples of `unit` with any sign. Where `_ends_decide(unit)`, none that fits the limits is missing."""
        places, factor = _scaled(unit)
        if _ends_decide(unit):
            return concat([_MINUS, self._by_ends(places, factor, integral=integral)])
        if factor > _MAX_FACTOR or places > _MAX_PLACES:
            raise UnsupportedGrammarError(
                f"multipleOf {decimal_text(unit)} has too many remainders; use 1, 2 or 5 times a power of ten, "
                f"or at most {_MAX_FACTOR} times one"
            )
        size = 15 if factor <= 20 else 9
        return concat([_MINUS, self._by_remainders(places, factor, size, integral=integral)])

    def _by_ends(self, places: int, factor: int, *, integral: bool) -> Node:
        """Numbers whose last digits alone decide: `factor` divides a power of ten."""
        if places == 0:
            width = next(width for width in range(10) if 10**width % factor == 0)
            ends = range(0, 10**width, factor)
            short = choices(str(end).encode() for end in ends)
            suffix = choices(str(end).rjust(width, "0").encode() for end in ends) if width else EMPTY
            whole = any_node([short, concat([NONZERO, repeat(DIGIT, 0, self._whole), suffix])])
            return whole if integral else concat([whole, _zeros()])
        if factor == 1:
            places_or_zeros = concat([repeat(DIGIT, 1, places), repeat(ZERO, 0, None)])
            return concat([self._any_whole(), repeat(concat([DOT, places_or_zeros]), 0, 1)])
        texts = [str(end).rjust(places, "0") for end in range(0, 10**places, factor)]
        exact = choices(text.encode() for text in texts)
        short = {text[:size] for text in texts for size in range(1, places) if not text[size:].strip("0")}
        behind = any_node([concat([exact, repeat(ZERO, 0, None)]), choices(map(str.encode, short)) if short else NEVER])
        return concat([self._any_whole(), repeat(concat([DOT, behind]), 0, 1)])

    def _by_remainders(self, places: int, factor: int, size: int, *, integral: bool) -> Node:
        """Numbers of at most `size` digits before the point; a state knows the remainder so far and the digits left."""
        states: dict[tuple[int, int], int] = {}
        arrows: list[tuple[int, Node, int]] = []
        waiting: list[tuple[int, int]] = []
        last = 1 + size * factor

        def step(state: int, left: int, targets: Mapping[int, list[int]]) -> None:
            for remainder, digits in targets.items():
                key = left, remainder
                if key not in states:
                    states[key] = 1 + len(states)
                    waiting.append(key)
                arrows.append((state, _of_digits(digits), states[key]))

        step(0, size - 1, _by_remainder(0, range(1, 10), factor))
        arrows.append((0, concat([ZERO, self._after_whole(places, factor, 0, integral=integral)]), last))
        while waiting:
            left, remainder = waiting.pop()
            state = states[left, remainder]
            arrows.append((state, self._after_whole(places, factor, remainder, integral=integral), last))
            if left:
                step(state, left - 1, _by_remainder(remainder, range(10), factor))
        return Paths(last + 1, tuple(arrow for arrow in arrows if arrow[1] != NEVER))

    def _after_whole(self, places: int, factor: int, remainder: int, *, integral: bool) -> Node:
        """What may follow the whole part whose remainder is `remainder`."""
        key = (places, factor, remainder, integral)
        if key not in self._tails:
            self._tails[key] = self._tail(*key)
        return self._tails[key]

    def _tail(self, places: int, factor: int, remainder: int, integral: bool) -> Node:
        whole = remainder * 10**places % factor == 0
        if places == 0:
            return NEVER if not whole else EMPTY if integral else _zeros()
        found: set[str] = set()
        for end in range(10**places):
            if (remainder * 10**places + end) % factor == 0:
                text = str(end).rjust(places, "0")
                found.add(text)
                found.update(text[:size] for size in range(1, places) if not text[size:].strip("0"))
        behind = concat([DOT, choices(map(str.encode, found)), repeat(ZERO, 0, 8)]) if found else NEVER
        return any_node([EMPTY if whole else NEVER, behind])

    def _any_whole(self) -> Node:
        return any_node([ZERO, concat([NONZERO, repeat(DIGIT, 0, self._whole - 1)])])


def spelled_number(value: Fraction) -> list[bytes]:
    """The texts in which a listed number is written: plainly, and if that is long also as JSON writers do with a float."""
    plain = decimal_text(value)
    if len(plain) <= _LONGEST_PLAIN:
        return [plain.encode()]
    try:
        short = repr(float(value))
    except OverflowError:
        short = plain
    return [text.encode() for text in (plain, short) if Fraction(text) == value]


def _scaled(unit: Fraction) -> tuple[int, int]:
    """The least number of decimal places at which multiples of `unit` are whole, and `unit` in the last of them."""
    _, _, digits = decimal_text(unit).partition(".")
    return len(digits), int(unit * 10 ** len(digits))


def _ends_decide(unit: Fraction) -> bool:
    places, factor = _scaled(unit)
    if factor == 1:
        return True
    width = places or next((width for width in range(5) if 10**width % factor == 0), 0)
    return 10**width % factor == 0 and 10**width // factor <= _MAX_SUFFIXES


def _by_remainder(before: int, digits: Iterable[int], factor: int) -> dict[int, list[int]]:
    """Which of `digits` lead from one remainder to which."""
    targets: dict[int, list[int]] = defaultdict(list)
    for digit in digits:
        targets[(before * 10 + digit) % factor].append(digit)
    return targets


def _zeros() -> Node:
    return repeat(concat([DOT, repeat(ZERO, 1, None)]), 0, 1)


def _sign() -> Node:
    return Chars(CharSet(((0x2B, 0x2B), (0x2D, 0x2D))))


def _of_digits(digits: list[int]) -> Node:
    return Chars(CharSet.of([(0x30 + digit, 0x30 + digit) for digit in digits]))
