"""Keywords of numbers and strings."""

from __future__ import annotations

from fractions import Fraction

from sglang_lite.grammar.json_schema.scalars import exact, values_form
from tests.grammar.json_schema.verdicts import accepts, check


def test_bounds_of_numbers() -> None:
    check(
        [
            ({"type": "integer", "minimum": -5, "maximum": 12}, [-5, 0, 12], [-6, 13]),
            ({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}, [0.1, 1.5, 1], [0, 1.51, -1]),
            ({"type": "number", "minimum": -4, "maximum": 4}, [-0.5, 4, -4, 3.999], [4.1, -4.0001]),
            ({"type": "integer", "minimum": 1e3}, [1000, 123456789], [999, -1000]),
            ({"type": "integer", "multipleOf": 5, "minimum": 100}, [100, 1005], [95, 101]),
            ({"type": "number", "multipleOf": 0.01}, [1.25, 3, 0.1], [1.255]),
            ({"minimum": 2}, [2, "a", None], [1]),
        ]
    )


def test_lengths_count_characters_however_they_are_written() -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 2}
    check([(schema, ["ab", "é😀", '"\\'], ["a", "abc", ""])])
    assert accepts(schema, '"\\u00e9\\ud83d\\ude00"')
    assert not accepts(schema, '"\\u00e9"')


def test_patterns_and_lengths_meet() -> None:
    check([({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ["a", "abc"], ["abcd", "", "A"])])


def test_values_are_sorted_by_type_and_numbers_are_exact() -> None:
    form = values_form([1, 1.0, True, "1", None, [1], {"a": 1}])
    assert form.numbers[0].values == {Fraction(1)}
    assert form.null
    assert form.true
    assert not form.false
    assert len(form.arrays) == len(form.objects) == 1
    assert exact(0.1) == Fraction(1, 10)
