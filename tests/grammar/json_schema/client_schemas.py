"""Schemas in the shapes that clients send: pydantic 2 and zod here, SDKs and tools in `tool_schemas.py`."""

from __future__ import annotations

from tests.grammar.json_schema.client_case import DRAFT_7, DRAFT_2020, ClientSchema, closed
from tests.grammar.json_schema.tool_schemas import OPENAI, TOOLS

PYDANTIC = [
    ClientSchema(
        "pydantic plain model",
        {
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "age": {"title": "Age", "type": "integer"},
                "height": {"default": 1.8, "title": "Height", "type": "number"},
            },
            "required": ["name", "age"],
            "title": "User",
            "type": "object",
        },
        [{"name": "Ada", "age": 36}, {"name": "Ada", "age": 36, "height": 1.7}],
        [{"name": "Ada"}, {"name": 1, "age": 2}, {"name": "Ada", "age": 3.5}, []],
    ),
    ClientSchema(
        "pydantic optional fields",
        {
            "properties": {
                "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Nick"},
                "score": {
                    "anyOf": [{"maximum": 10, "minimum": 0, "type": "number"}, {"type": "null"}],
                    "default": None,
                    "title": "Score",
                },
            },
            "title": "Maybe",
            "type": "object",
        },
        [{}, {"nick": None}, {"nick": "a", "score": 9.5}],
        [{"nick": 1}, {"score": 11}, {"score": -1}],
    ),
    ClientSchema(
        "pydantic nested models",
        {
            "$defs": {
                "Address": {
                    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^\\d{5}$"}},
                    "required": ["street", "zip"],
                    "title": "Address",
                    "type": "object",
                }
            },
            "properties": {
                "home": {"$ref": "#/$defs/Address"},
                "others": {"items": {"$ref": "#/$defs/Address"}, "title": "Others", "type": "array"},
            },
            "required": ["home"],
            "title": "Person",
            "type": "object",
        },
        [
            {"home": {"street": "x", "zip": "12345"}},
            {"home": {"street": "x", "zip": "12345"}, "others": [{"street": "y", "zip": "54321"}]},
        ],
        [{"home": {"street": "x", "zip": "1234"}}, {"home": {"street": "x"}}, {"others": []}],
    ),
    ClientSchema(
        "pydantic enum and literal",
        {
            "$defs": {"Color": {"enum": ["red", "green"], "title": "Color", "type": "string"}},
            "properties": {
                "color": {"$ref": "#/$defs/Color"},
                "kind": {"const": "box", "title": "Kind", "type": "string"},
                "size": {"enum": [1, 2, 3], "title": "Size", "type": "integer"},
            },
            "required": ["color", "kind", "size"],
            "title": "Box",
            "type": "object",
        },
        [{"color": "red", "kind": "box", "size": 2}],
        [{"color": "blue", "kind": "box", "size": 2}, {"color": "red", "kind": "bag", "size": 2}],
    ),
    ClientSchema(
        "pydantic discriminated union",
        {
            "$defs": {
                "Cat": {
                    "properties": {"kind": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}},
                    "required": ["kind", "lives"],
                    "type": "object",
                },
                "Dog": {
                    "properties": {"kind": {"const": "dog", "type": "string"}, "name": {"type": "string"}},
                    "required": ["kind", "name"],
                    "type": "object",
                },
            },
            "properties": {
                "pet": {
                    "discriminator": {
                        "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                        "propertyName": "kind",
                    },
                    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                }
            },
            "required": ["pet"],
            "type": "object",
        },
        [{"pet": {"kind": "cat", "lives": 9}}, {"pet": {"kind": "dog", "name": "Rex"}}],
        [{"pet": {"kind": "cat", "name": "Rex"}}, {"pet": {"kind": "cow", "lives": 1}}],
    ),
    ClientSchema(
        "pydantic recursive model",
        {
            "$defs": {
                "Node": {
                    "properties": {
                        "value": {"type": "integer"},
                        "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
                    },
                    "required": ["value"],
                    "type": "object",
                }
            },
            "$ref": "#/$defs/Node",
        },
        [{"value": 1}, {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}],
        [{"value": 1, "children": [{"value": "2"}]}, {"children": []}],
    ),
    ClientSchema(
        "pydantic constrained types",
        {
            "properties": {
                "code": {"maxLength": 6, "minLength": 3, "pattern": "^[A-Z]+$", "type": "string"},
                "percent": {"exclusiveMaximum": 100, "exclusiveMinimum": 0, "type": "number"},
                "even": {"multipleOf": 2, "type": "integer"},
                "tags": {"items": {"type": "string"}, "maxItems": 3, "minItems": 1, "type": "array"},
            },
            "required": ["code", "percent", "even", "tags"],
            "type": "object",
        },
        [{"code": "ABC", "percent": 0.5, "even": -4, "tags": ["a", "b"]}],
        [
            {"code": "AB", "percent": 0.5, "even": 4, "tags": ["a"]},
            {"code": "ABC", "percent": 100, "even": 4, "tags": ["a"]},
            {"code": "ABC", "percent": 1, "even": 3, "tags": ["a"]},
            {"code": "ABC", "percent": 1, "even": 4, "tags": []},
        ],
    ),
    ClientSchema(
        "pydantic dates and identifiers",
        {
            "properties": {
                "id": {"format": "uuid", "type": "string"},
                "day": {"format": "date", "type": "string"},
                "at": {"format": "date-time", "type": "string"},
                "took": {"format": "duration", "type": "string"},
                "mail": {"format": "email", "type": "string"},
                "link": {"format": "uri", "maxLength": 2083, "minLength": 1, "type": "string"},
            },
            "required": ["id", "day"],
            "type": "object",
        },
        [
            {"id": "123e4567-e89b-12d3-a456-426614174000", "day": "2024-02-29", "at": "2024-02-29T12:00:00Z"},
            {
                "id": "123e4567-e89b-12d3-a456-426614174000",
                "day": "2024-02-28",
                "took": "PT5M",
                "mail": "ada@example.com",
                "link": "https://example.com/a?b=c#d",
            },
        ],
        [
            {"id": "123e4567", "day": "2024-02-28"},
            {"id": "123e4567-e89b-12d3-a456-426614174000", "day": "2023-02-29"},
            {"id": "123e4567-e89b-12d3-a456-426614174000", "day": "2023-02-28", "mail": "ada"},
        ],
    ),
    ClientSchema(
        "pydantic dictionaries",
        {
            "properties": {
                "counts": {"additionalProperties": {"type": "integer"}, "type": "object"},
                "by_code": {
                    "patternProperties": {"^[a-z]{2}$": {"type": "string"}},
                    "additionalProperties": False,
                    "type": "object",
                },
            },
            "required": ["counts"],
            "type": "object",
        },
        [{"counts": {}}, {"counts": {"a": 1, "b": 2}, "by_code": {"de": "x"}}],
        [{"counts": {"a": "1"}}, {"counts": {}, "by_code": {"deu": "x"}}],
    ),
    ClientSchema(
        "pydantic tuples and sets",
        {
            "properties": {
                "point": {
                    "maxItems": 2,
                    "minItems": 2,
                    "prefixItems": [{"type": "number"}, {"type": "number"}],
                    "type": "array",
                },
                "days": {"items": {"enum": ["sat", "sun"], "type": "string"}, "type": "array", "uniqueItems": True},
            },
            "required": ["point"],
            "type": "object",
        },
        [{"point": [1, 2.5]}, {"point": [1, 2], "days": ["sun", "sat"]}],
        [{"point": [1]}, {"point": [1, 2, 3]}, {"point": [1, 2], "days": ["sun", "sun"]}],
    ),
    ClientSchema(
        "pydantic forbids extras",
        {
            "additionalProperties": False,
            "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
            "required": ["a"],
            "type": "object",
        },
        [{"a": True}, {"a": False, "b": None}],
        [{"a": True, "c": 1}, {"b": None}],
    ),
    ClientSchema(
        "pydantic inherited reference with description",
        {
            "$defs": {"Level": {"enum": [1, 2], "type": "integer"}},
            "properties": {"level": {"$ref": "#/$defs/Level", "description": "How hard", "default": 1}},
            "type": "object",
        },
        [{}, {"level": 2}],
        [{"level": 3}],
    ),
    ClientSchema(
        "pydantic 1 allOf reference",
        {
            "definitions": {"Unit": {"title": "Unit", "enum": ["kg", "lb"], "type": "string"}},
            "properties": {"unit": {"title": "Unit", "default": "kg", "allOf": [{"$ref": "#/definitions/Unit"}]}},
            "type": "object",
        },
        [{}, {"unit": "lb"}],
        [{"unit": "g"}],
    ),
    ClientSchema(
        "pydantic decimal",
        {
            "properties": {
                "price": {
                    "anyOf": [{"type": "number"}, {"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "type": "string"}]
                }
            },
            "required": ["price"],
            "type": "object",
        },
        [{"price": 1.5}],
        [{"price": None}, {"price": "x"}],
    ),
]

ZOD = [
    ClientSchema(
        "zod object",
        {
            "$schema": DRAFT_7,
            "type": "object",
            "properties": {"title": {"type": "string"}, "done": {"type": "boolean"}},
            "required": ["title", "done"],
            "additionalProperties": False,
        },
        [{"title": "x", "done": False}],
        [{"title": "x"}, {"title": "x", "done": 0}],
    ),
    ClientSchema(
        "zod nullable and optional",
        {
            "$schema": DRAFT_7,
            "type": "object",
            "properties": {"a": {"type": ["string", "null"]}, "b": {"type": ["number", "null"], "minimum": 0}},
            "required": ["a"],
            "additionalProperties": False,
        },
        [{"a": None}, {"a": "x", "b": None}, {"a": "x", "b": 0.5}],
        [{"a": 1}, {"a": "x", "b": -0.5}],
    ),
    ClientSchema(
        "zod discriminated union",
        {
            "$schema": DRAFT_2020,
            "oneOf": [
                closed({"type": {"type": "string", "const": "ok"}, "data": {"type": "string"}}),
                closed({"type": {"type": "string", "const": "error"}, "code": {"type": "integer"}}),
            ],
        },
        [{"type": "ok", "data": ""}, {"type": "error", "code": 5}],
        [{"type": "ok", "code": 5}, {"type": "warn", "code": 5}],
    ),
    ClientSchema(
        "zod integer with safe bounds",
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}},
            "required": ["n"],
            "additionalProperties": False,
        },
        [{"n": 0}, {"n": -9007199254740991}, {"n": 9007199254740991}],
        [{"n": 9007199254740992}, {"n": 1.5}],
    ),
    ClientSchema(
        "zod record",
        {
            "type": "object",
            "propertyNames": {"type": "string", "enum": ["en", "de"]},
            "additionalProperties": {"type": "string"},
        },
        [{}, {"en": "hello"}, {"de": "hallo", "en": "hello"}],
        [{"fr": "salut"}, {"en": 1}],
    ),
    ClientSchema(
        "zod tuple with rest",
        {
            "$schema": DRAFT_7,
            "type": "array",
            "minItems": 2,
            "items": [{"type": "string"}, {"type": "number"}],
            "additionalItems": {"type": "boolean"},
        },
        [["a", 1], ["a", 1, True, False]],
        [["a"], ["a", 1, 2], [1, "a"]],
    ),
    ClientSchema(
        "zod lazy",
        {
            "$schema": DRAFT_7,
            "$ref": "#/definitions/Category",
            "definitions": {
                "Category": closed(
                    {
                        "name": {"type": "string"},
                        "subcategories": {"type": "array", "items": {"$ref": "#/definitions/Category"}},
                    }
                )
            },
        },
        [{"name": "a", "subcategories": [{"name": "b", "subcategories": []}]}],
        [{"name": "a", "subcategories": [{"name": "b"}]}],
    ),
    ClientSchema(
        "zod email and url",
        {
            "type": "object",
            "properties": {
                "email": {
                    "type": "string",
                    "format": "email",
                    "pattern": "^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$",
                },
                "when": {"type": "string", "format": "date-time"},
            },
            "required": ["email"],
            "additionalProperties": False,
        },
        [{"email": "a.b@example.org"}, {"email": "a@b.co", "when": "2020-01-01T00:00:00.000Z"}],
        [{"email": "a@b"}, {"email": "a@b.co", "when": "2020-01-01"}],
    ),
    ClientSchema(
        "zod intersection",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]},
            ],
            "unevaluatedProperties": False,
        },
        [{"a": "x", "b": 1}],
        [{"a": "x"}, {"a": "x", "b": 1, "c": 2}],
    ),
    ClientSchema(
        "zod union of primitives",
        {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "array", "items": {}}]},
        ["x", 1, True, [1, "a"]],
        [None, {}],
    ),
]

CLIENT_SCHEMAS = [*PYDANTIC, *ZOD, *OPENAI, *TOOLS]
