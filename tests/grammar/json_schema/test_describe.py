"""Schemas in words."""

from __future__ import annotations

from sglang_lite.grammar import GrammarCompiler, TokenVocab
from sglang_lite.grammar.json_schema import describe_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40, "description": "Full name"},
        "unit": {"enum": ["kg", "lb"]},
        "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["name", "unit"],
}
TEXT = """object
  "name": string, at most 40 characters: Full name
  "unit": "kg" | "lb"
  "kids" (optional): array, at most 3 items
    each item: object (fields as above)
  "note" (optional): value
    either string
    or null
Example: {"name": "...", "unit": "kg"}"""


def test_a_schema_is_described_by_fields_in_order() -> None:
    assert describe_schema(SCHEMA) == TEXT


def test_a_compiled_schema_describes_itself() -> None:
    compiler = GrammarCompiler(TokenVocab([b"a", b""], eos_ids=[1]))
    assert compiler.compile_json_schema(SCHEMA).describe() == TEXT
    assert compiler.compile_regex("a+").describe() == "a+"


def test_examples_of_the_schema_are_used() -> None:
    assert describe_schema({"type": "integer", "minimum": 3}).endswith("Example: 3")
    assert describe_schema({"properties": {"a": {"examples": ["x"]}}}).endswith('Example: {"a": "x"}')
    assert describe_schema(True) == "anything\nExample: null"
