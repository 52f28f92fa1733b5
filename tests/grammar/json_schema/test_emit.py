"""Terms to rules: shared, few, and named after their place."""

from __future__ import annotations

from sglang_lite.grammar.json_schema import schema_to_grammar
from tests.grammar.json_schema.verdicts import check


def test_equal_schemas_share_a_rule() -> None:
    names = [f"p{i}" for i in range(30)]
    text = {"type": "string", "pattern": "^[a-z]{3,9}$"}
    few, many = (
        len(schema_to_grammar({"type": "object", "properties": dict.fromkeys(names[:count], text)}).grammar.rules)
        for count in (2, 30)
    )
    assert many <= few + 60


def test_rules_are_named_after_their_place() -> None:
    items = {"type": "array", "items": {"$ref": "#"}}
    grammar = schema_to_grammar({"type": "object", "properties": {"list": items}}).grammar
    assert "/properties/list" in grammar.rules


def test_unions_over_all_types() -> None:
    schema = {
        "anyOf": [
            {"type": "null"},
            {"const": False},
            {"type": "integer", "maximum": 3},
            {"maxLength": 1, "type": "string"},
        ]
    }
    check([(schema, [None, False, 3, "a"], [True, 4, "ab", [], {}])])
