"""Schemas in the shapes that OpenAI's SDK, function calling, instructor, langchain and tool protocols send."""

from __future__ import annotations

from tests.grammar.json_schema.client_case import DRAFT_7, ClientSchema, closed

OPENAI = [
    ClientSchema(
        "openai calendar event",
        closed(
            {
                "name": {"type": "string"},
                "date": {"type": "string", "description": "The day, as a date"},
                "participants": {"type": "array", "items": {"type": "string"}},
            }
        ),
        [{"name": "fair", "date": "Friday", "participants": ["Alice", "Bob"]}],
        [{"name": "fair", "date": "Friday"}, {"name": "fair", "date": "Friday", "participants": ["A"], "x": 1}],
    ),
    ClientSchema(
        "openai chain of thought",
        {
            "$defs": {"Step": closed({"explanation": {"type": "string"}, "output": {"type": "string"}})},
            **closed(
                {
                    "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
                    "final_answer": {"type": "string"},
                }
            ),
        },
        [{"steps": [{"explanation": "e", "output": "o"}], "final_answer": "7"}],
        [{"steps": [{"explanation": "e"}], "final_answer": "7"}],
    ),
    ClientSchema(
        "openai recursive interface",
        closed(
            {
                "type": {"type": "string", "enum": ["div", "button"]},
                "label": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#"}},
                "attributes": {
                    "type": "array",
                    "items": closed({"name": {"type": "string"}, "value": {"type": "string"}}),
                },
            }
        ),
        [
            {
                "type": "div",
                "label": "",
                "children": [{"type": "button", "label": "x", "children": [], "attributes": []}],
                "attributes": [{"name": "a", "value": "b"}],
            }
        ],
        [{"type": "div", "label": "", "children": [{}], "attributes": []}],
    ),
    ClientSchema(
        "openai optional as union with null",
        closed(
            {
                "location": {"type": "string"},
                "unit": {"type": ["string", "null"], "enum": ["F", "C", None]},
            }
        ),
        [{"location": "Rome", "unit": None}, {"location": "Rome", "unit": "C"}],
        [{"location": "Rome", "unit": "K"}, {"location": "Rome"}],
    ),
    ClientSchema(
        "openai linked list",
        {
            "$defs": {
                "node": closed(
                    {"value": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}
                )
            },
            **closed({"list": {"$ref": "#/$defs/node"}}),
        },
        [{"list": {"value": 1, "next": {"value": 2.5, "next": None}}}],
        [{"list": {"value": 1, "next": 2}}],
    ),
    ClientSchema(
        "openai function with loose parameters",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "filters": {"type": "object"},
            },
            "required": ["query"],
        },
        [{"query": "x"}, {"query": "x", "limit": 100}, {"query": "x", "filters": {"a": [1, {"b": None}]}}],
        [{"limit": 5}, {"query": "x", "limit": 0}, {"query": "x", "limit": 101}],
    ),
    ClientSchema(
        "openai numeric ranges",
        closed(
            {
                "temperature": {"type": "number", "minimum": -40.5, "maximum": 50.25},
                "step": {"type": "number", "multipleOf": 0.25},
            }
        ),
        [{"temperature": -40.5, "step": 0.75}, {"temperature": 50.25, "step": 3}],
        [{"temperature": -40.51, "step": 0}, {"temperature": 0, "step": 0.3}, {"temperature": 50.3, "step": 0}],
    ),
]

TOOLS = [
    ClientSchema(
        "instructor partial with descriptions",
        {
            "description": "Correctly extracted `Invoice` with all the required parameters",
            "properties": {
                "number": {"description": "Invoice number", "title": "Number", "type": "string"},
                "total": {"description": "Sum", "title": "Total", "type": "number", "examples": [12.5]},
                "lines": {
                    "items": {"$ref": "#/$defs/Line"},
                    "title": "Lines",
                    "type": "array",
                },
            },
            "required": ["lines", "number", "total"],
            "type": "object",
            "$defs": {
                "Line": {
                    "properties": {"text": {"type": "string"}, "price": {"type": "number"}},
                    "required": ["price", "text"],
                    "type": "object",
                }
            },
        },
        [{"number": "1", "total": 2, "lines": [{"text": "a", "price": 1.5}]}],
        [{"number": "1", "total": 2}],
    ),
    ClientSchema(
        "instructor maybe",
        {
            "$defs": {"User": {"properties": {"name": {"type": "string"}}, "required": ["name"], "type": "object"}},
            "properties": {
                "result": {"anyOf": [{"$ref": "#/$defs/User"}, {"type": "null"}], "default": None},
                "error": {"default": False, "type": "boolean"},
                "message": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            },
            "type": "object",
        },
        [{"result": {"name": "x"}}, {"result": None, "error": True, "message": "no"}],
        [{"result": {}}, {"error": "yes"}],
    ),
    ClientSchema(
        "langchain tool",
        {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
        [{"a": 2, "b": 3}],
        [{"a": 2}, {"a": 2, "b": 3.5}],
    ),
    ClientSchema(
        "langchain router",
        {
            "title": "RouteQuery",
            "type": "object",
            "properties": {
                "datasource": {
                    "title": "Datasource",
                    "enum": ["vectorstore", "web search"],
                    "type": "string",
                    "description": "Where to look",
                }
            },
            "required": ["datasource"],
        },
        [{"datasource": "web search"}],
        [{"datasource": "web"}],
    ),
    ClientSchema(
        "model context protocol tool",
        {
            "$schema": DRAFT_7,
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {
                    "type": "array",
                    "items": closed({"oldText": {"type": "string"}, "newText": {"type": "string"}}),
                },
                "dryRun": {"type": "boolean", "default": False, "description": "Only show"},
            },
            "required": ["path", "edits"],
            "additionalProperties": False,
        },
        [{"path": "/a", "edits": [{"oldText": "a", "newText": "b"}], "dryRun": True}],
        [{"path": "/a", "edits": [{"oldText": "a"}]}],
    ),
    ClientSchema(
        "openapi 3.0 model",
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "format": "int64", "readOnly": True, "example": 10},
                "status": {"type": "string", "nullable": True, "deprecated": True, "xml": {"wrapped": True}},
            },
            "required": ["id"],
        },
        [{"id": 10}, {"id": 10, "status": None}, {"id": 10, "status": "sold"}],
        [{"id": None}, {"id": 1, "status": 1}],
    ),
    ClientSchema(
        "any object",
        {"type": "object"},
        [{}, {"a": {"b": [1, None, {"c": "d"}]}}],
        [[], 1, "x", None],
    ),
    ClientSchema(
        "array at the top",
        {"type": "array", "items": closed({"id": {"type": "integer"}}), "minItems": 1, "maxItems": 3},
        [[{"id": 1}], [{"id": 1}, {"id": 2}, {"id": 3}]],
        [[], [{"id": 1}] * 4, [{"id": "1"}]],
    ),
    ClientSchema(
        "conditional form",
        {
            "type": "object",
            "properties": {"country": {"enum": ["US", "NL"]}, "code": {"type": "string"}},
            "required": ["country", "code"],
            "if": {"properties": {"country": {"const": "US"}}},
            "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}},
            "else": {"properties": {"code": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
        },
        [{"country": "US", "code": "12345"}, {"country": "NL", "code": "1234 AB"}],
        [{"country": "US", "code": "1234 AB"}, {"country": "NL", "code": "12345"}],
    ),
]
