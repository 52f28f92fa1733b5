"""Accept and reject tables of public bug reports about JSON schemas in other engines: (report, schema, accept, reject)."""

from __future__ import annotations

REPORTS: list[tuple[str, dict[str, object], list[str], list[str]]] = [
    ("dottxt-ai/outlines#971", {"const": True}, ["true"], ["True", '"true"', "1"]),
    ("dottxt-ai/outlines#971", {"const": None}, ["null"], ["None", '"null"', "0"]),
    (
        "dottxt-ai/outlines#971",
        {"const": 'say "hi" \\ bye'},
        ['"say \\"hi\\" \\\\ bye"'],
        ['"say "hi" \\ bye"', '"say hi"'],
    ),
    (
        "dottxt-ai/outlines#971",
        {"enum": ["http://a.b/c", "x.y*z", "(p|q)"]},
        ['"http://a.b/c"', '"x.y*z"', '"(p|q)"'],
        ['"xay*z"', '"p"', '"http:||a.b|c"'],
    ),
    (
        "dottxt-ai/outlines#971",
        {"enum": [1, 2.5, -3, "4", None, False]},
        ["1", "2.5", "-3", '"4"', "null", "false"],
        ["4", '"1"', "2", "true"],
    ),
    ("dottxt-ai/outlines#971", {"const": {"a": [1, "x"]}}, ['{"a":[1,"x"]}'], ['{"a":[1]}', "{}"]),
    (
        "mlc-ai/xgrammar#286",
        {"type": "string"},
        ['""', '"a b"', '"\\n\\t\\\\\\"\\u00e9"', '"é"', '"😀"', '"\\/"'],
        ['"a\tb"', '"a\nb"', '"\\x41"', '"\\u12"', "'a'", '"a', '"\\"'],
    ),
    (
        "ohdearquant/lattice#355; guidance-ai/guidance#1039",
        {
            "type": "object",
            "properties": {"r": {"const": 1}, "o": {"const": 2}},
            "required": ["r"],
            "additionalProperties": False,
        },
        ['{"r":1}', '{"r":1,"o":2}'],
        ["{}", '{"o":2}', '{"r":1,}', '{,"r":1}', '{"r":1,"o":3}', '{"r":1,"z":1}'],
    ),
    (
        "ohdearquant/lattice#355; guidance-ai/guidance#1039",
        {
            "type": "object",
            "properties": {"o": {"const": 2}, "r": {"const": 1}},
            "required": ["r"],
            "additionalProperties": False,
        },
        ['{"r":1}', '{"o":2,"r":1}'],
        ['{"o":2,}', '{"o":2}'],
    ),
    (
        "ohdearquant/lattice#355; guidance-ai/guidance#1039",
        {
            "type": "object",
            "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
            "additionalProperties": False,
        },
        ["{}", '{"a":1}', '{"b":2}', '{"c":3}', '{"a":1,"c":3}', '{"a":1,"b":2,"c":3}'],
        ['{"a":1,,"c":3}', "{,}", '{"a":1 "b":2}', '{"d":1}'],
    ),
    (
        "ohdearquant/lattice#355; guidance-ai/guidance#1039",
        {"type": "object", "properties": {"a": {"const": "foo"}, "b": {"const": "bar"}}, "required": ["b"]},
        ['{"b":"bar"}', '{"a":"foo","b":"bar"}'],
        ['{"b":"bar","a":"BAD"}', '{"a":"foo"}'],
    ),
    (
        "ggml-org/llama.cpp PR #7797",
        {"type": "integer"},
        ["0", "-1", "10", "123456"],
        ["00", "01", "-01", "+1", "1.5", "1.", "-", "0x1", ".5", "1e"],
    ),
    (
        "ggml-org/llama.cpp PR #7797",
        {"type": "number"},
        ["0", "-0.5", "1.25", "10", "1e5", "1.5E-3"],
        ["01", "1.", "-", "--1", ".5", "1e", "NaN", "Infinity", "1,5"],
    ),
    (
        "ggml-org/llama.cpp PR #7797",
        {
            "type": "object",
            "properties": {"year": {"type": "integer"}},
            "required": ["year"],
            "additionalProperties": False,
        },
        ['{"year":2}'],
        ['{"year":02}', '{"year":}', '{"year":"2"}'],
    ),
    (
        "ggml-org/llama.cpp#27580",
        {"type": "string", "pattern": "^\\d+$"},
        ['"7"', '"42"'],
        ['""', '"4a"', "42", '"\\\\d"'],
    ),
    ("ggml-org/llama.cpp#27580", {"type": "string", "pattern": "^[\\w-]+$"}, ['"a-b_1"'], ['"a b"', '""']),
    (
        "ggml-org/llama.cpp#27580",
        {
            "type": "object",
            "properties": {"ver": {"type": "string", "pattern": "^\\d+\\.\\d+\\.\\d+$"}},
            "required": ["ver"],
            "additionalProperties": False,
        },
        ['{"ver":"1.20.3"}'],
        ['{"ver":"1.2"}', '{"ver":"1x2x3"}'],
    ),
]
