"""Values against schemas, beside an outside judge."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from sglang_lite.lang.backends.hosted.json_check import find_fault

VALUES: list[Any] = [None, True, False, 0, 1, -3, 1.0, 2.5, "", "a", "ab", "abcd", [], [1], [1, "a"], [1, 1], [1, 2, 3]]
VALUES += [{}, {"a": 1}, {"a": "x"}, {"a": 1, "b": None}, {"b": []}, {"a": {"a": 1}}, {"x1": 3}]
SCHEMAS: list[Any] = [
    True,
    False,
    {},
    {"type": "integer"},
    {"type": "number"},
    {"type": ["string", "null"]},
    {"enum": [1, "a", None]},
    {"const": True},
    {"const": {"a": 1}},
    {"minimum": 1, "maximum": 2},
    {"exclusiveMinimum": 1, "exclusiveMaximum": 3, "type": "number"},
    {"multipleOf": 0.5},
    {"minLength": 1, "maxLength": 2, "type": "string"},
    {"pattern": "^a"},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
    {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"uniqueItems": True},
    {"minProperties": 1, "maxProperties": 1},
    {"anyOf": [{"type": "string"}, {"minimum": 1}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"allOf": [{"type": "number"}, {"not": {"const": 1}}]},
    {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/n"}]}}}},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_verdicts_are_those_of_another_validator(schema: Any) -> None:
    judge = jsonschema.Draft202012Validator(schema)
    wrong = [value for value in VALUES if (find_fault(value, schema) is None) != judge.is_valid(value)]
    assert wrong == []


def test_a_fault_names_its_place() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert find_fault({"a": [1, "x"]}, schema) == 'the value.a[1] is "x", expected integer'
