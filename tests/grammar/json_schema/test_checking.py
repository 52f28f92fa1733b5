"""Shapes of keyword values."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import InvalidGrammarError
from sglang_lite.grammar.json_schema.checking import check_schema, is_count, is_number


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("type", [1]),
        ("multipleOf", 0),
        ("minimum", "1"),
        ("minimum", float("nan")),
        ("maxItems", 1.5),
        ("allOf", {}),
        ("anyOf", [3]),
        ("properties", {"a": 1}),
        ("dependentRequired", {"a": "b"}),
        ("items", "x"),
        ("uniqueItems", 1),
        ("pattern", "[z-a]"),
        ("patternProperties", {"(": {}}),
    ],
)
def test_a_value_of_the_wrong_shape_is_an_error(keyword: str, value: object) -> None:
    with pytest.raises(InvalidGrammarError, match=f"#/x/{keyword}"):
        check_schema("/x", {keyword: value})


def test_values_of_the_right_shape_pass() -> None:
    schema = {
        "type": ["null", "integer"],
        "maxItems": 2.0,
        "exclusiveMinimum": True,
        "dependencies": {"a": ["b"], "c": {}},
        "items": [{}],
    }
    check_schema("", schema)


def test_booleans_are_no_numbers() -> None:
    assert not is_number(True)
    assert not is_count(False)
    assert is_count(3.0)
