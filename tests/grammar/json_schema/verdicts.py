"""What a schema's grammar says of texts and values, by the independent recogniser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sglang_lite.grammar.json_schema import SchemaNote, SchemaOptions, schema_to_grammar
from tests.support.grammar_oracle import recognises

Table = Sequence[tuple[Mapping[str, object], Sequence[object], Sequence[object]]]  # schema, valid values, invalid ones
COMPACT, SPACED = (",", ":"), (", ", ": ")


def accepts(schema: Mapping[str, object] | bool, text: str, options: SchemaOptions | None = None) -> bool:
    """Whether the grammar of `schema` has the text."""
    return recognises(schema_to_grammar(schema, options or SchemaOptions()).grammar, text)


def written(value: object, separators: tuple[str, str] = COMPACT) -> str:
    """The JSON text of a value."""
    return json.dumps(value, separators=separators, ensure_ascii=False)


def check(table: Table, options: SchemaOptions | None = None) -> None:
    """Assert the verdict on every value of a table."""
    for schema, valid, invalid in table:
        grammar = schema_to_grammar(schema, options or SchemaOptions()).grammar
        for value in valid:
            assert recognises(grammar, written(value)), f"{schema} must accept {written(value)}"
        for value in invalid:
            assert not recognises(grammar, written(value)), f"{schema} must reject {written(value)}"


def notes(schema: Mapping[str, object], options: SchemaOptions | None = None) -> tuple[SchemaNote, ...]:
    """The notes on a schema."""
    return schema_to_grammar(schema, options or SchemaOptions()).notes
