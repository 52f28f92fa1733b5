"""Reduced cases of public reports and own findings: (source, schema, text, whether it is valid; None: either way)."""

from __future__ import annotations

CASES: list[tuple[str, dict[str, object], str, bool | None]] = [
    ("mlc-ai/xgrammar#895", {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, '"abcd"', False),
    (
        "vllm-project/vllm#45592",
        {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "string", "pattern": "^[\\x20-\\x7E]+$", "maxLength": 8},
        },
        '["123456789","a"]',
        False,
    ),
    (
        "mlc-ai/xgrammar#858",
        {
            "type": "object",
            "properties": {"modifier": {"type": "string"}},
            "additionalProperties": False,
            "anyOf": [{"required": ["modifier"]}],
        },
        "[1,2]",
        False,
    ),
    (
        "mlc-ai/xgrammar#858b",
        {
            "type": "object",
            "properties": {"modifier": {"type": "string"}},
            "additionalProperties": False,
            "anyOf": [{"required": ["modifier"]}],
        },
        '{"modifier":"x"}',
        True,
    ),
    (
        "mlc-ai/xgrammar#826",
        {
            "type": "object",
            "propertyNames": {"type": "string"},
            "additionalProperties": {
                "type": "object",
                "properties": {"n": {"type": "number"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
        '{"a":"plain"}',
        False,
    ),
    ("mlc-ai/xgrammar#826b", {"type": "string", "pattern": "^a$|^b$"}, '"b"', True),
    ("mlc-ai/xgrammar#800", {"type": "string", "maxLength": 20}, '"a\\nb"', True),
    ("mlc-ai/xgrammar#800b", {"type": "string", "maxLength": 20}, '"a\tb"', False),
    (
        "mlc-ai/xgrammar#639",
        {
            "type": "object",
            "properties": {"x": {"type": "string", "enum": []}},
            "required": ["x"],
            "additionalProperties": False,
        },
        '{"x": }',
        False,
    ),
    (
        "mlc-ai/xgrammar#286",
        {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        '{"text":"\tab"}',
        False,
    ),
    ("mlc-ai/xgrammar#662", {"type": "number", "minimum": -4, "maximum": 4}, "-0.5", True),
    ("mlc-ai/xgrammar#661a", {"type": "number", "exclusiveMinimum": 0}, "0.1", True),
    ("mlc-ai/xgrammar#661b", {"type": "number", "minimum": 2}, "1", False),
    ("mlc-ai/xgrammar#661c", {"type": "number", "minimum": 1, "maximum": 5}, "5.7", False),
    ("mlc-ai/xgrammar#661d", {"type": "number", "exclusiveMaximum": 5}, "5", False),
    ("mlc-ai/xgrammar#661e", {"type": "integer", "minimum": -5}, "-3", True),
    (
        "mlc-ai/xgrammar#487",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "grade": {"type": "string"}},
            "additionalProperties": False,
            "patternProperties": {"^x_": {"type": "integer"}},
        },
        '{"name":"J","grade":"B"}',
        True,
    ),
    (
        "mlc-ai/xgrammar#487b",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "additionalProperties": False,
            "patternProperties": {"^x_": {"type": "integer"}},
        },
        '{"name":"J","x_a":"str"}',
        False,
    ),
    ("mlc-ai/xgrammar#269", {"type": "object"}, "{}\n", None),
    (
        "guidance-ai/llguidance#265",
        {
            "type": "object",
            "properties": {"score": {"type": "integer"}},
            "required": ["score"],
            "additionalProperties": False,
            "patternProperties": {"^score$": {"type": "integer"}},
        },
        '{"score":5}',
        True,
    ),
    (
        "guidance-ai/llguidance#187",
        {"type": "object", "properties": {"limit": {"type": "number"}, "page": {"type": "number"}}},
        '{"page":0,"limit":1}',
        True,
    ),
    ("guidance-ai/llguidance#206", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "0", False),
    (
        "dottxt-ai/outlines#724",
        {
            "type": "object",
            "properties": {"a(b)": {"type": "integer"}},
            "required": ["a(b)"],
            "additionalProperties": False,
        },
        '{"a(b)":1}',
        True,
    ),
    ("dottxt-ai/outlines-core#147", {"type": "integer", "minimum": 0}, "-1", False),
    ("dottxt-ai/outlines-core#231", {"type": "string"}, '"a\\nb\\u00e9"', True),
    (
        "dottxt-ai/outlines-core#186",
        {
            "type": "object",
            "properties": {"value": {"oneof": [{"type": "string"}]}},
            "required": ["value"],
            "additionalProperties": False,
        },
        '{"value":1}',
        True,
    ),
    (
        "own:recursive",
        {
            "$defs": {
                "n": {
                    "type": "object",
                    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                    "required": ["v"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/n",
        },
        '{"v":1,"c":[{"v":2,"c":[{"v":3,"c":[{"v":4,"c":[{"v":5,"c":[{"v":6}]}]}]}]}]}',
        True,
    ),
    (
        "own:optional comma",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "additionalProperties": False,
        },
        '{"b":1}',
        True,
    ),
    ("own:dup key", {"type": "object", "additionalProperties": {"type": "integer"}}, '{"a":1,"a":2}', None),
    ("own:unanchored pattern", {"type": "string", "pattern": "b"}, '"abc"', True),
    (
        "own:additional key equal to declared",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        '{"a":"x"}',
        False,
    ),
    (
        "own:escaped key same as declared",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        '{"\\u0061":"x"}',
        False,
    ),
    ("own:enum mixed", {"enum": [1, "1", None, {"a": []}]}, '{"a":[]}', True),
    ("own:const unicode", {"const": "é\n"}, '"é\\n"', True),
    ("own:uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1,1]", False),
    ("own:oneOf overlap", {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1", False),
    ("own:multipleOf", {"type": "integer", "multipleOf": 5}, "7", False),
    ("own:integer 1.0", {"type": "integer"}, "1.0", None),
    ("own:minLength counts code points", {"type": "string", "minLength": 2, "maxLength": 2}, '"😀é"', True),
    ("own:escape counts 1", {"type": "string", "maxLength": 1}, '"\\u00e9"', True),
    (
        "own:allOf merge",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]
        },
        '{"a":1}',
        False,
    ),
    (
        "own:dependentRequired",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "dependentRequired": {"a": ["b"]},
        },
        '{"a":1}',
        False,
    ),
    ("own:minProperties", {"type": "object", "minProperties": 1}, "{}", False),
    ("own:lone surrogate", {"type": "string"}, '"\\ud800"', None),
]
