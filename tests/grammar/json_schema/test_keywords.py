"""The keywords one by one and in combination, against values with known verdicts."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema import SchemaOptions, schema_to_grammar
from tests.grammar.json_schema.verdicts import accepts, check, notes


def test_types_alone_and_in_lists() -> None:
    check(
        [
            ({"type": "null"}, [None], [0, "", False]),
            ({"type": ["integer", "string"]}, [1, "a"], [1.5, None]),
            ({"type": "number"}, [1, 1.5, -2, 1e300], ["1"]),
            ({"type": "boolean"}, [True, False], [0, 1]),
            ({"type": "string", "nullable": True}, ["a", None], [1]),
        ]
    )


def test_all_of_is_the_intersection() -> None:
    check(
        [
            ({"allOf": [{"minimum": 3}, {"maximum": 5}], "type": "integer"}, [3, 5], [2, 6]),
            ({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, ["ab", "bxa"], ["a", "b"]),
            (
                {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 2}}}]},
                [{"a": 1}, {"a": 2}, {}],
                [{"a": 0}, {"a": 3}],
            ),
            ({"allOf": [{"items": {"type": "integer"}}, {"minItems": 1}], "type": "array"}, [[1]], [[], ["a"]]),
        ]
    )


def test_one_of_is_exactly_one() -> None:
    check(
        [
            ({"oneOf": [{"type": "integer"}, {"minimum": 2}], "type": "number"}, [1, 2.5], [3, 1.5]),
            (
                {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
                [{"a": 1}, {"b": 1}],
                [{}, {"a": 1, "b": 1}],
            ),
            ({"oneOf": [{"maxLength": 2}, {"minLength": 2}], "type": "string"}, ["a", "abc"], ["ab"]),
            ({"oneOf": [True, False]}, [1, None], []),
        ]
    )


def test_branches_of_one_of_are_told_apart_by_what_surrounds_them() -> None:
    """The discriminator is required outside the branches only."""
    branch = [{"properties": {"k": {"const": kind}, "v": {"type": kind}}} for kind in ("string", "integer")]
    schema: dict[str, object] = {"type": "object", "required": ["k"], "allOf": [{"oneOf": branch}]}
    check([(schema, [{"k": "string", "v": "x"}, {"k": "integer", "v": 1}], [{"k": "string", "v": 1}, {"k": "x"}])])


def test_not_is_the_complement() -> None:
    check(
        [
            ({"not": {"type": "integer"}}, [1.5, "a", None, {}], [1, 0]),
            ({"not": {"type": ["integer", "boolean"]}}, [1.5, []], [1, True]),
            ({"type": "string", "not": {"enum": ["a", "ab"]}}, ["", "b", "abc"], ["a", "ab"]),
            ({"type": "string", "not": {"pattern": "^a"}}, ["", "ba"], ["a", "ab"]),
            ({"type": "object", "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
            ({"type": "object", "not": {"properties": {"a": {"type": "string"}}}}, [{"a": 1}], [{}, {"a": "x"}]),
            (
                {"type": "object", "not": {"additionalProperties": {"type": "string"}}},
                [{"x": 1}, {"y": "a", "x": 1}],
                [{}, {"x": "a"}],
            ),
            ({"type": "array", "not": {"items": {"type": "string"}}}, [[1], ["a", 1]], [[], ["a"]]),
            ({"type": "number", "not": {"minimum": 3}}, [2.9, -1], [3, 4]),
            ({"type": "integer", "not": {"multipleOf": 5}}, [1, 6], [0, 5, 10]),
            ({"type": "integer", "not": {"const": 5}}, [4, 6], [5]),
            ({"not": {"not": {"type": "null"}}}, [None], [1]),
        ]
    )


def test_if_then_else() -> None:
    schema: dict[str, object] = {
        "type": "integer",
        "if": {"minimum": 10},
        "then": {"multipleOf": 10},
        "else": {"maximum": 5},
    }
    check([(schema, [5, 10, 20, -3], [6, 11, 25])])
    check([({"if": {"type": "string"}, "then": {"minLength": 2}}, ["ab", 1, None], ["a"])])
    check([({"if": {"type": "string"}, "else": {"type": "null"}}, ["", None], [1])])


def test_references_in_any_order_with_siblings_and_recursion() -> None:
    check(
        [
            (
                {"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}},
                [5],
                [6, "a"],
            ),
            (
                {"$defs": {"x": {"$anchor": "n", "type": "null"}}, "items": {"$ref": "#n"}, "type": "array"},
                [[None]],
                [[1]],
            ),
            ({"type": "array", "items": {"$ref": "#"}}, [[], [[[]], []]], [[1]]),
        ]
    )


def test_a_reference_to_another_document_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedGrammarError, match=r"#/items/\$ref: 'http://x/y\.json' leads to another document"):
        schema_to_grammar({"items": {"$ref": "http://x/y.json"}})


def test_dependent_keywords() -> None:
    check(
        [
            (
                {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
                [{}, {"b": 1}, {"a": 1, "b": 1}],
                [{"a": 1}],
            ),
            (
                {"type": "object", "dependentSchemas": {"a": {"maxProperties": 1}}},
                [{"a": 1}, {"b": 1, "c": 2}],
                [{"a": 1, "b": 2}],
            ),
            (
                {"type": "object", "dependencies": {"a": {"required": ["b"]}, "c": ["a"]}},
                [{"a": 1, "b": 2}],
                [{"a": 1}, {"c": 1}],
            ),
        ]
    )


def test_unevaluated_members_and_items() -> None:
    base = {"properties": {"a": {"type": "integer"}}}
    check(
        [
            (
                {"type": "object", "allOf": [base], "unevaluatedProperties": False},
                [{}, {"a": 1}],
                [{"b": 1}, {"a": "x"}],
            ),
            (
                {
                    "type": "object",
                    "anyOf": [base, {"properties": {"b": True}, "required": ["b"]}],
                    "unevaluatedProperties": False,
                },
                [{"a": 1, "b": 2}, {"b": 2}],
                [{"c": 1}],
            ),
            (
                {
                    "type": "array",
                    "allOf": [{"prefixItems": [{"type": "string"}]}],
                    "unevaluatedItems": {"type": "null"},
                },
                [["a", None]],
                [["a", 1]],
            ),
            (
                {"type": "object", "if": {"required": ["a"]}, "then": base, "unevaluatedProperties": False},
                [{"a": 1}, {}],
                [{"b": 1}],
            ),
        ]
    )


def test_annotations_and_unknown_keywords_never_refuse() -> None:
    schema = {
        **dict.fromkeys(
            ["title", "description", "$comment", "x-order", "markdownDescription", "contentEncoding"], "text"
        ),
        **{
            key: [1]
            for key in ("default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator", "example")
        },
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "http://example.com/s.json",
        "format": "an unknown one",
        "type": "string",
    }
    check([(schema, ["a"], [1])])
    assert notes(schema) == ()


def test_formats_may_be_annotations() -> None:
    assert not accepts({"type": "string", "format": "ipv4"}, '"x"')
    assert accepts({"type": "string", "format": "ipv4"}, '"x"', SchemaOptions(formats="annotation"))


def test_a_format_that_is_offered_in_part_is_noted_and_never_negated() -> None:
    assert [(note.pointer, note.effect) for note in notes({"type": "string", "format": "email"})] == [
        ("/format", "narrower")
    ]
    with pytest.raises(UnsupportedGrammarError, match="offered in part"):
        schema_to_grammar({"type": "string", "not": {"format": "email"}})


def test_older_drafts_are_read() -> None:
    check(
        [
            ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, [4], [3]),
            ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, [[], ["a"]], [["a", 1]]),
            (
                {
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "id": "http://a/b",
                    "$ref": "http://a/b#/definitions/c",
                    "definitions": {"c": {"type": "null"}},
                },
                [None],
                [1],
            ),
        ]
    )


def test_enums_meet_the_other_keywords() -> None:
    check(
        [
            (
                {"enum": [1, 2, "a", None, [1], {"a": 1}], "type": ["integer", "array", "object"]},
                [1, 2, [1], {"a": 1}],
                ["a", None, [2]],
            ),
            ({"enum": ["a", "bb", "ccc"], "minLength": 2, "pattern": "^[a-b]"}, ["bb"], ["a", "ccc"]),
            ({"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{"a": [1]}, {}]),
        ]
    )
