from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import GrammarError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.syntax import Grammar
from sglang_lite.grammar.tag_spec import parse_structural_tag
from tests.grammar.recursive import grammar, json_grammar


def any_json(schema: Any) -> Grammar:
    """Stands for the front end of schemas, which has tests of its own."""
    assert schema == {}
    return json_grammar()


def compiled(spec: Any) -> CompiledGrammar:
    return grammar(repr(spec), parse_structural_tag(spec, any_json))


OLD = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<fn=a>", "schema": {}, "end": "</fn>"},
        {"begin": "<fn=b>", "schema": {}, "end": "</fn>"},
    ],
    "triggers": ["<fn="],
}


def of_format(**fields: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": fields}


def test_the_older_shape() -> None:
    for spec in (OLD, json.dumps(OLD)):
        made = compiled(spec)
        assert made.accepts('I call <fn=a>{"x": [1]}</fn> and <fn=b>[]</fn>.')
        assert made.accepts("I call nothing <fn")
        assert not made.accepts("<fn=c>{}</fn>")
        assert not made.accepts("<fn=a>{]</fn>")


TAG = {"begin": "<t>", "content": {"type": "regex", "pattern": "^[0-9]+$"}, "end": "</t>"}


@pytest.mark.parametrize(
    ("spec", "accepted", "rejected"),
    [
        (of_format(type="const_string", value="hi"), ["hi"], ["", "hi!"]),
        (of_format(type="json_schema", json_schema={}), ["[1]"], ["[1"]),
        (of_format(type="regex", pattern="a|b"), ["a"], ["ab"]),
        (of_format(type="grammar", grammar='root ::= "(" root ")" | "x"'), ["((x))"], ["(x"]),
        (of_format(type="any_text"), ["", "what\never"], []),
        (of_format(**TAG, type="tag"), ["<t>12</t>"], ["<t></t>", "so <t>1</t>"]),
        (
            of_format(type="tags_with_separator", tags=[TAG, {**TAG, "begin": "<u>"}], separator=", "),
            ["<t>1</t>", "<u>1</t>, <t>2</t>, <u>3</t>"],
            ["", "<t>1</t>, ", "<t>1</t><t>2</t>", "so <t>1</t>"],
        ),
        (
            of_format(type="tag", begin="<think>", content={"type": "any_text"}, end="</think>"),
            ["<think></think>", "<think>a < b</think>"],
            ["<think>a", "<think>a</think>b</think>"],
        ),
        (
            of_format(type="sequence", elements=[{"type": "const_string", "value": "a"}, {"type": "json_schema", "json_schema": {}}, {"type": "json_schema", "json_schema": {}}]),
            ["a[][]"],
            ["a[]", "[][]"],
        ),
        (of_format(type="or", elements=[{"type": "const_string", "value": "a"}, {**TAG, "type": "tag"}]), ["a", "<t>1</t>"], [""]),
        (of_format(type="triggered_tags", triggers=["<t"], tags=[TAG]), ["", "so <t>1</t>, <t>2</t>"], ["<t", "<t>x</t>"]),
        (
            of_format(type="triggered_tags", triggers=["<t>"], tags=[TAG], at_least_one=True, stop_after_first=True),
            ["so <t>1</t>"],
            ["so", "<t>1</t> on"],
        ),
    ],
)  # fmt: skip
def test_formats(spec: dict[str, Any], accepted: list[str], rejected: list[str]) -> None:
    made = compiled(spec)
    assert [text for text in accepted if not made.accepts(text)] == []
    assert [text for text in rejected if made.accepts(text)] == []


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("{", InvalidGrammarError, "not JSON"),
        ([], InvalidGrammarError, "/ is .*expected an object"),
        ({"type": "json"}, InvalidGrammarError, "\"type\" is 'json'"),
        ({**OLD, "structures": {}}, InvalidGrammarError, "/structures is .*expected a list"),
        (
            {**OLD, "structures": [{"begin": "<fn=a>", "schema": {}}]},
            InvalidGrammarError,
            "/structures/0/end is missing",
        ),
        ({**OLD, "triggers": [1]}, InvalidGrammarError, "/triggers/0 is 1, expected a text"),
        ({**OLD, "strict": True}, UnsupportedGrammarError, "the field /strict"),
        (of_format(type="qwen_xml_parameter"), UnsupportedGrammarError, "'qwen_xml_parameter' at /format"),
        (of_format(type="sequence", elements=[]), InvalidGrammarError, "/format/elements is empty"),
        (
            of_format(type="sequence", elements=[{"type": "regex"}]),
            InvalidGrammarError,
            "/format/elements/0/pattern is missing",
        ),
        (of_format(type="regex", pattern="(?=a)"), UnsupportedGrammarError, "look-ahead"),
        (of_format(type="triggered_tags", triggers=["<x"], tags=[TAG]), InvalidGrammarError, "'<x'"),
        (
            of_format(type="triggered_tags", triggers=["<t"], tags=[TAG], at_least_one=1),
            InvalidGrammarError,
            "at_least_one is 1",
        ),
    ],
)
def test_faults_are_named_with_their_path(spec: Any, error: type[GrammarError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_structural_tag(spec, any_json)
