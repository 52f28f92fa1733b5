"""Sets of numbers: intervals, integrality, multiples, values, closed under intersection and complement; knows no text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, lcm

from sglang_lite.grammar.hashing import Hashed, hashed_once

_MAX_LISTED = 256  # an integral interval of at most this many members is searched for multiples


@hashed_once
@dataclass(frozen=True, slots=True)
class NumberSet(Hashed):
    """The numbers that satisfy every field; a default field demands nothing.

    Attributes:
        low, high: bounds, None where there is none; `low_open`, `high_open` say whether the bound itself is left out.
        integral: True for whole numbers only (1.0 is one), False for the others only.
        multiples, other_multiples: positive numbers of which each member is a multiple, or is not.
        values: the only members, if listed; then all other fields are defaults.
    """

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    integral: bool | None = None
    multiples: frozenset[Fraction] = frozenset()
    other_multiples: frozenset[Fraction] = frozenset()
    values: frozenset[Fraction] | None = None

    def __contains__(self, value: Fraction) -> bool:
        if self.values is not None:
            return value in self.values
        return (
            (self.low is None or value > self.low or (value == self.low and not self.low_open))
            and (self.high is None or value < self.high or (value == self.high and not self.high_open))
            and (self.integral is None or (value.denominator == 1) == self.integral)
            and all((value / one).denominator == 1 for one in self.multiples)
            and all((value / one).denominator != 1 for one in self.other_multiples)
        )

    @property
    def is_empty(self) -> bool:
        """Whether no member is left; False where that is not decided."""
        if self.values is not None:
            return not self.values
        if self.low is None or self.high is None:
            return self.integral is False and any(one.denominator == 1 for one in self.multiples)
        if self.low > self.high or (self.low == self.high and (self.low_open or self.high_open)):
            return True
        if self.low == self.high:
            return self.low not in self
        spread = self.listed()
        return spread is not None and not spread

    def listed(self) -> frozenset[Fraction] | None:
        """All members, if they are few and come at regular distances; None otherwise."""
        if self.values is not None:
            return self.values
        stride = self.stride
        if stride is None or self.low is None or self.high is None:
            return None
        first, last = ceil(self.low / stride), floor(self.high / stride)
        if last - first >= _MAX_LISTED:
            return None
        return frozenset(value for value in (stride * n for n in range(first, last + 1)) if value in self)

    @property
    def stride(self) -> Fraction | None:
        """The smallest positive number of which all members are multiples; None if they are dense."""
        units = [*self.multiples, *([Fraction(1)] if self.integral else [])]
        if not units:
            return None
        found = units[0]
        for unit in units[1:]:
            denominator = lcm(found.denominator, unit.denominator)
            found = Fraction(lcm(int(found * denominator), int(unit * denominator)), denominator)
        return found


ALL_NUMBERS = NumberSet()


def number_values(values: frozenset[Fraction]) -> NumberSet:
    """Exactly these numbers."""
    return NumberSet(values=values)


def meet_numbers(left: NumberSet, right: NumberSet) -> NumberSet | None:
    """The numbers in both; None if there are none."""
    if left.values is not None or right.values is not None:
        listed, other = (left, right) if left.values is not None else (right, left)
        kept = frozenset(value for value in listed.values or () if value in other)
        return number_values(kept) if kept else None
    if left.integral is not None and right.integral is not None and left.integral != right.integral:
        return None
    low, low_open = _tighter(left.low, left.low_open, right.low, right.low_open, 1)
    high, high_open = _tighter(left.high, left.high_open, right.high, right.high_open, -1)
    integral = left.integral if right.integral is None else right.integral
    if integral:
        if low is not None:
            low, low_open = Fraction(floor(low) + 1 if low_open else ceil(low)), False
        if high is not None:
            high, high_open = Fraction(ceil(high) - 1 if high_open else floor(high)), False
    met = NumberSet(
        low,
        low_open,
        high,
        high_open,
        integral,
        left.multiples | right.multiples,
        left.other_multiples | right.other_multiples,
    )
    if met.multiples & met.other_multiples or met.is_empty:
        return None
    return met


def complement_numbers(one: NumberSet) -> list[NumberSet]:
    """The numbers that are not in `one`, as a union."""
    if one.values is not None:
        return _gaps(sorted(one.values))
    found: list[NumberSet] = []
    if one.low is not None:
        found.append(NumberSet(high=one.low, high_open=not one.low_open))
    if one.high is not None:
        found.append(NumberSet(low=one.high, low_open=not one.high_open))
    if one.integral is not None:
        found.append(NumberSet(integral=not one.integral))
    found.extend(NumberSet(other_multiples=frozenset([unit])) for unit in one.multiples)
    found.extend(NumberSet(multiples=frozenset([unit])) for unit in one.other_multiples)
    return found


def _gaps(values: list[Fraction]) -> list[NumberSet]:
    found: list[NumberSet] = []
    rest = ALL_NUMBERS
    for value in values:
        found.append(replace(rest, high=value, high_open=True))
        rest = NumberSet(low=value, low_open=True)
    return [*found, rest]


def _tighter(
    left: Fraction | None, left_open: bool, right: Fraction | None, right_open: bool, direction: int
) -> tuple[Fraction | None, bool]:
    """The stricter of two bounds; `direction` is 1 for lower bounds, -1 for upper ones."""
    if left is None or right is None:
        return (right, right_open) if left is None else (left, left_open)
    if left == right:
        return left, left_open or right_open
    return (left, left_open) if (left - right) * direction > 0 else (right, right_open)
