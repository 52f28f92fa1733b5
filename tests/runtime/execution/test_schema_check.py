"""Checking finished values: each keyword, the place of a fault, and the published suite where it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.runtime.execution.schema_check import CHECKED, find_faults


@pytest.mark.parametrize(
    ("schema", "good", "bad", "pointer"),
    [
        ({"type": "integer"}, 1.0, 1.5, "/type"),
        ({"type": ["string", "null"]}, None, True, "/type"),
        ({"enum": [1, "a"]}, 1.0, True, "/enum"),
        ({"const": {"a": [1]}}, {"a": [1.0]}, {"a": [2]}, "/const"),
        ({"minimum": 2, "maximum": 5}, 5, 6, "/maximum"),
        ({"exclusiveMinimum": 2}, 2.1, 2, "/exclusiveMinimum"),
        ({"multipleOf": 0.1}, 0.3, 0.35, "/multipleOf"),
        ({"minLength": 2}, "éa", "é", "/minLength"),
        ({"pattern": "b"}, "abc", "ac", "/pattern"),
        ({"maxItems": 1}, [1], [1, 2], "/maxItems"),
        ({"uniqueItems": True}, [1, True], [1, 1.0], "/uniqueItems"),
        ({"contains": {"type": "null"}}, [1, None], [1], "/contains"),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "string"}}, [None, "a"], [None, 1], "/items/type"),
        ({"required": ["a"]}, {"a": 1}, {"b": 1}, "/required"),
        ({"properties": {"a/b": {"type": "null"}}}, {"a/b": None}, {"a/b": 1}, "/properties/a~1b/type"),
        ({"patternProperties": {"^x": False}}, {"y": 1}, {"x": 1}, "/patternProperties/^x"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, {"b": 1}, "/additionalProperties"),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}, "/propertyNames/maxLength"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}, "/dependentRequired"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {}, {"a": 1}, "/dependentSchemas/a/required"),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 4, "/allOf/1/maximum"),
        ({"anyOf": [{"minimum": 3}, {"maximum": 1}]}, 1, 2, "/anyOf"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, 4, 2, "/oneOf"),
        ({"not": {"type": "string"}}, 1, "a", "/not"),
        ({"if": {"minimum": 3}, "then": {"multipleOf": 2}, "else": {"const": 1}}, 4, 5, "/then/multipleOf"),
        ({"$ref": "#/$defs/a%", "$defs": {"a%": {"type": "null"}}}, None, 1, "/$defs/a%/type"),
        (True, 1, None, None),
        (False, None, 1, ""),
    ],
)
def test_each_keyword(schema: Any, good: Any, bad: Any, pointer: str | None) -> None:
    if schema is not False:
        assert find_faults(good, schema) == []
    if pointer is not None:
        assert pointer in [fault.pointer for fault in find_faults(bad, schema)]


def test_recursion_ends_with_the_value_and_a_schema_that_goes_nowhere_is_named() -> None:
    tree = {"properties": {"child": {"$ref": "#"}}, "required": ["v"]}
    assert find_faults({"v": 1, "child": {"v": 2, "child": {"v": 3}}}, tree) == []
    assert [f.message for f in find_faults({"v": 1, "child": {}}, tree)] == ["the value['child'] lacks 'v'"]
    endless = find_faults(1, {"$ref": "#"})
    assert [fault.is_unknown for fault in endless] == [True]


def test_what_python_cannot_read_is_no_verdict() -> None:
    (fault,) = find_faults("a", {"pattern": r"\p{L}"})
    assert fault.is_unknown
    assert "Python cannot read" in fault.message


@pytest.mark.data("json-schema-test-suite")
def test_the_published_suite_agrees(data_dir: Path) -> None:
    """Every group of draft 2020-12 whose keywords are all checked; references out of the document are left out."""
    known = CHECKED | {"$defs", "$schema", "$comment", "title", "description", "default", "$id"}
    num_tests = 0
    for path in sorted(data_dir.glob("json-schema-test-suite/draft2020-12/*.json")):
        if path.stem in ("format", "refRemote", "ref", "defs", "anchor", "dynamicRef", "id", "vocabulary", "content"):
            continue
        for group in json.loads(path.read_text(encoding="utf-8")):
            if not _keywords(group["schema"]) <= known or "$id" in json.dumps(group["schema"]):
                continue
            for test in group["tests"]:
                faults = find_faults(test["data"], group["schema"])
                if any(fault.is_unknown for fault in faults):
                    continue
                num_tests += 1
                assert (not faults) == test["valid"], (path.stem, group["description"], test["description"], faults)
    assert num_tests > 500


def _keywords(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_keywords, schema))
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for key, part in schema.items():
        if key in ("properties", "patternProperties", "$defs", "dependentSchemas"):
            found |= set().union(*map(_keywords, part.values()))
        elif key not in ("enum", "const", "required", "dependentRequired", "default"):
            found |= _keywords(part)
    return found
