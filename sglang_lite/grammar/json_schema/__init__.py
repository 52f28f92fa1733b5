"""JSON Schema (draft 2020-12, and what older drafts, OpenAPI and clients send) to grammars; knows no vocabulary and no automaton."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.convert import schema_to_grammar
from sglang_lite.grammar.json_schema.options import SchemaGrammar, SchemaNote, SchemaOptions

__all__ = ["SchemaGrammar", "SchemaNote", "SchemaOptions", "schema_to_grammar"]
