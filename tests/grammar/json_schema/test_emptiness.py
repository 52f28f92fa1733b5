"""Which schemas are proven to have no value."""

from __future__ import annotations

import pytest

from sglang_lite.grammar.json_schema.documents import Document
from sglang_lite.grammar.json_schema.normalise import Normaliser
from sglang_lite.grammar.json_schema.options import SchemaOptions
from sglang_lite.grammar.json_schema.terms import Located


@pytest.mark.parametrize(
    ("schema", "is_void"),
    [
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, True),
        ({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, True),
        ({"type": "string", "enum": [1]}, True),
        ({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": {"enum": []}}}, False),
        ({"type": "array", "items": {"not": {}}, "minItems": 1}, True),
        ({"type": "array", "contains": {"const": 1}, "items": {"type": "string"}}, True),
        ({"type": "array", "items": {"$ref": "#"}}, False),
        ({"enum": [None], "type": ["null", "string"]}, False),
    ],
)
def test_a_schema_without_a_value_is_found(schema: dict[str, object], is_void: bool) -> None:
    normaliser = Normaliser(Document(schema), SchemaOptions())
    assert normaliser.emptiness.is_void(Located("")) == is_void
