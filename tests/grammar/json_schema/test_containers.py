"""Keywords of arrays and objects."""

from __future__ import annotations

from tests.grammar.json_schema.verdicts import accepts, check


def test_items_prefix_and_counts() -> None:
    check(
        [
            (
                {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": False},
                [[], ["a"], ["a", None]],
                [["a", 1], ["a", None, 1]],
            ),
            (
                {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
                [[1, 2], [1, 2, 3]],
                [[1], [1, 2, 3, 4]],
            ),
            (
                {"type": "array", "prefixItems": [{"type": "string"}], "minItems": 2},
                [["a", 1], ["a", {}, 2]],
                [["a"], []],
            ),
            ({"type": "array", "maxItems": 0}, [[]], [[1]]),
            ({"minItems": 1}, [[1], "a", 3, {}], [[]]),
        ]
    )


def test_contains_with_bounds() -> None:
    check(
        [
            ({"type": "array", "contains": {"const": 1}}, [[1], [2, 1, 3]], [[], [2]]),
            ({"type": "array", "contains": {"minimum": 5}, "maxContains": 1}, [[5], [1, 6, 2]], [[5, 6], []]),
            (
                {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3, "maxItems": 4},
                [[1, 1], [1, 2, 1, 1]],
                [[1], [1, 1, 1, 1]],
            ),
            ({"type": "array", "contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
        ]
    )


def test_properties_in_order_with_extras_behind() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]}
    check(
        [(schema, [{"b": "x"}, {"a": 1, "b": "x"}, {"b": "x", "z": None}], [{"a": 1}, {"b": 1}, {"a": "x", "b": "y"}])]
    )
    assert not accepts(schema, '{"b":"x","b":"y"}')
    assert not accepts(schema, '{"b":"x","\\u0061":"y"}')


def test_classes_of_names() -> None:
    check(
        [
            (
                {
                    "type": "object",
                    "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
                    "additionalProperties": False,
                },
                [{"x": 1}, {"xy": 5}, {"y": "a"}],
                [{"xy": 1}, {"z": 1}],
            ),
            (
                {"type": "object", "properties": {"xa": {"maximum": 9}}, "patternProperties": {"^x": {"minimum": 3}}},
                [{"xa": 5}, {"q": 1}],
                [{"xa": 1}, {"xa": 10}, {"xb": 2}],
            ),
            ({"type": "object", "propertyNames": {"maxLength": 2}}, [{}, {"ab": 1}], [{"abc": 1}]),
            (
                {"type": "object", "propertyNames": {"enum": ["a"]}, "required": ["a"]},
                [{"a": 1}],
                [{}, {"a": 1, "b": 2}],
            ),
            ({"type": "object", "properties": {"a": True, "b": False}}, [{"a": 1}, {"c": 1}], [{"b": 1}]),
        ]
    )


def test_numbers_of_members() -> None:
    check(
        [
            (
                {
                    "type": "object",
                    "properties": {"a": {}, "b": {}},
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                },
                [{"a": 1}, {"b": 1}],
                [{}, {"a": 1, "b": 1}],
            ),
            (
                {"type": "object", "minProperties": 2, "maxProperties": 3},
                [{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 3}],
                [{"a": 1}, {}, {"a": 1, "b": 2, "c": 3, "d": 4}],
            ),
            ({"type": "object", "maxProperties": 0}, [{}], [{"a": 1}]),
        ]
    )
