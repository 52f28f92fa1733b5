"""JSON Schema (draft 2020-12, and what older drafts, OpenAPI and clients send) to grammars; knows no vocabulary and no automaton."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.convert import schema_text, schema_to_grammar
from sglang_lite.grammar.json_schema.describe import describe_schema
from sglang_lite.grammar.json_schema.options import Formats, SchemaGrammar, SchemaNote, SchemaOptions, Whitespace

__all__ = [
    "Formats",
    "SchemaGrammar",
    "SchemaNote",
    "SchemaOptions",
    "Whitespace",
    "describe_schema",
    "schema_text",
    "schema_to_grammar",
]
