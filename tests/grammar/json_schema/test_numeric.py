"""Sets of numbers: their algebra against membership."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.json_schema.numeric import NumberSet, complement_numbers, meet_numbers

NUMBERS = st.integers(-40, 40).map(lambda n: Fraction(n, 4))
SETS = st.builds(
    NumberSet,
    low=st.none() | NUMBERS,
    low_open=st.booleans(),
    high=st.none() | NUMBERS,
    high_open=st.booleans(),
    integral=st.sampled_from([None, True, False]),
    multiples=st.frozensets(st.sampled_from([Fraction(1, 2), Fraction(3)]), max_size=2),
    other_multiples=st.frozensets(st.sampled_from([Fraction(2), Fraction(3, 4)]), max_size=1),
) | st.builds(NumberSet, values=st.frozensets(NUMBERS, min_size=1, max_size=3))


@given(SETS, SETS, NUMBERS)
def test_an_intersection_holds_what_both_hold(left: NumberSet, right: NumberSet, value: Fraction) -> None:
    met = meet_numbers(left, right)
    assert (met is not None and value in met) == (value in left and value in right)


@given(SETS, NUMBERS)
def test_a_complement_holds_what_the_set_does_not(one: NumberSet, value: Fraction) -> None:
    assert any(value in part for part in complement_numbers(one)) == (value not in one)


@given(SETS, NUMBERS)
def test_an_empty_set_has_no_member_and_a_list_is_complete(one: NumberSet, value: Fraction) -> None:
    if one.is_empty:
        assert value not in one
    listed = one.listed()
    if listed is not None:
        assert (value in listed) == (value in one)
