"""Public reports about other engines' JSON schemas, patterns and grammars, each with its own table, on the engine itself."""

from __future__ import annotations

import json
import random
import re

import pytest

from sglang_lite.grammar import GrammarError, GrammarMatcher
from sglang_lite.grammar.compiled import CompiledGrammar
from tests.grammar.json_schema.report_tables import REPORTS
from tests.grammar.toy import regex, toy_compiler, toy_vocab


def schema(source: object) -> CompiledGrammar:
    return toy_compiler().compile_json_schema(source)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("report", "source", "accept", "reject"), REPORTS)
def test_the_table_of_a_report_holds(
    report: str, source: dict[str, object], accept: list[str], reject: list[str]
) -> None:
    grammar = schema(source)
    assert [text for text in accept if not grammar.accepts(text)] == [], report
    assert [text for text in reject if grammar.accepts(text)] == [], report


def test_a_string_holds_no_raw_control_character() -> None:
    """mlc-ai/xgrammar#286."""
    grammar = schema({"type": "string"})
    assert [code for code in range(0x20) if grammar.accepts(f'"{chr(code)}"')] == []
    assert grammar.accepts('"\x7f"')
    inside = grammar.advance_bytes(grammar.start_state, b'"')
    vocab = toy_vocab()
    matcher = GrammarMatcher(grammar)
    matcher.accept_token(next(i for i in range(vocab.vocab_size) if vocab.token_text(i) == b'"'))
    assert inside >= 0
    assert [i for i in matcher.allowed_ids() if any(byte < 0x20 for byte in vocab.token_text(i))] == []


def test_sampled_free_strings_are_json() -> None:
    """mlc-ai/xgrammar#286: one hundred random walks, each parsed."""
    grammar, vocab, pick = schema({"type": "string", "maxLength": 8}), toy_vocab(), random.Random(1)
    for _ in range(100):
        matcher, text = GrammarMatcher(grammar), b""
        while not matcher.is_terminated:
            token = pick.choice(matcher.allowed_ids())
            matcher.accept_token(token)
            text += vocab.token_text(token)
        assert len(json.loads(text.decode())) <= 8


def test_known_keys_come_once() -> None:
    """ohdearquant/lattice#355."""
    grammar = schema({"type": "object", "properties": {"r": {"const": 1}}, "required": ["r"]})
    assert not grammar.accepts('{"r":1,"r":1}')


def test_a_recursive_schema_is_followed_to_any_depth() -> None:
    """dottxt-ai/outlines-core PR #98."""
    node = {
        "type": "object",
        "properties": {
            "v": {"type": "integer"},
            "kids": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/N"}},
        },
        "required": ["v", "kids"],
        "additionalProperties": False,
    }
    grammar = schema({"$defs": {"N": node}, "$ref": "#/$defs/N"})
    text = '{"v":1,"kids":[]}'
    for _ in range(12):
        assert grammar.accepts(text)
        assert not grammar.accepts(text.replace("[]", '["x"]'))
        text = f'{{"v":2,"kids":[{text}]}}'


def test_integers_end_and_white_space_is_bounded() -> None:
    """dottxt-ai/outlines#847, mlc-ai/xgrammar#412: a documented bound of digits and of white space."""
    grammar = schema({"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]})
    assert grammar.accepts('{"year":' + "1" * 32 + "}")
    assert not grammar.accepts('{"year":' + "1" * 33 + "}")
    loose = toy_compiler().compile_json_schema({"type": "array"}, whitespace="any")
    assert loose.accepts("[ ]")
    assert not loose.accepts("[" + " " * 1000 + "]")


def test_properties_keep_the_order_of_the_schema() -> None:
    """ollama/ollama#7978: also where `required` lists them otherwise, and in an inner object."""
    inner = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}, "required": ["a", "b"]}
    names = {"zeta": inner, "alpha": {"type": "null"}, "mid": {"type": "null"}}
    grammar = schema({"type": "object", "properties": names, "required": ["alpha", "mid", "zeta"]})
    assert grammar.accepts('{"zeta":{"b":null,"a":null},"alpha":null,"mid":null}')
    assert not grammar.accepts('{"alpha":null,"mid":null,"zeta":{"b":null,"a":null}}')
    assert not grammar.accepts('{"zeta":{"a":null,"b":null},"alpha":null,"mid":null}')


@pytest.mark.parametrize(
    "source", [{"pattern": "("}, {"type": "strin"}, "not json", [], 7, None, {"properties": []}], ids=repr
)
def test_a_schema_that_is_none_is_an_error_each_time(source: object) -> None:
    """ggml-org/llama.cpp#19051, sgl-project/sglang#4574."""
    for _ in range(2):
        with pytest.raises(GrammarError):
            schema(source)
    assert schema({"type": "null"}).accepts("null")


@pytest.mark.parametrize(
    ("source", "accept", "reject"),
    [
        ({"type": "object"}, ["{}", '{"a":{"b":[1,{}]}}'], ["1", '"a"', "[]", "null"]),
        ({}, ["{}", "1", '"a"', "[[]]"], ["{", ""]),
        (True, ["null"], ["nul"]),
        ({"type": "array"}, ["[]", "[1,[2]]"], ["{}"]),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            ['{"a":1}'],
            ['{"a":"1"}', '{"a":1.5}'],
        ),
    ],
    ids=repr,
)
def test_plain_schemas_compile(source: object, accept: list[str], reject: list[str]) -> None:
    """mlc-ai/xgrammar#256."""
    grammar = schema(source)
    assert [text for text in accept if not grammar.accepts(text)] == []
    assert [text for text in reject if grammar.accepts(text)] == []


@pytest.mark.parametrize(
    ("pattern", "text"), [("[😀-🙏]{3}", "😨😀🙏"), ("[😨]{1,4}", "😨😨"), ("(猫|狗)", "狗"), ("\\u6b6a", "歪")]
)
def test_characters_of_several_tokens_are_whole(pattern: str, text: str) -> None:
    """dottxt-ai/outlines#725: twenty random walks match; the first mask has no lead byte of another block."""
    grammar, vocab, pick = regex(pattern), toy_vocab(), random.Random(2)
    assert grammar.accepts(text)
    for _ in range(20):
        matcher, data = GrammarMatcher(grammar), b""
        while not matcher.is_terminated:
            token = pick.choice(matcher.allowed_ids())
            matcher.accept_token(token)
            data += vocab.token_text(token)
        assert re.fullmatch(pattern, data.decode())
    leads = {vocab.token_text(token)[0] for token in GrammarMatcher(grammar).allowed_ids()}
    assert leads <= {text.encode()[0], 0xE7, 0xE6}


def test_choices_and_enums_of_such_characters() -> None:
    assert toy_compiler().compile_choices(["🐈"]).accepts("🐈")
    assert schema({"enum": ["🐈"]}).accepts('"🐈"')


@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?P<x>a", "\\", "[z-a]", "(?=a)b", "(?<!a)b", r"(a)\1", "foo**"])
def test_bad_patterns_are_errors(pattern: str) -> None:
    """vllm-project/vllm#17313, #19270."""
    with pytest.raises(GrammarError):
        regex(pattern)


PROBES = ["", "a", "b", "ab", "abc", "c", "yes", "YES", "Yes", ".", "x.y", '"', "a b", "a\nb", "^ab$", "é", "\x00", "猫", "A-z_", "-", "(", "1,2"]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["^(|.*)$", "^(.*)$", "^ab$", "a|", "[\x00-⹿]+", "[A-Za-z0-9.,!?'\"\\-_<> ]+", "(?:ab)?c", r"\.", '[^"]*', "(?i:yes)"],
)  # fmt: skip
def test_good_patterns_mean_what_python_says(pattern: str) -> None:
    """vllm-project/vllm#17313, PR #37642, #15210. `$` before a last newline is not meant."""
    grammar = regex(pattern)
    differ = [text for text in PROBES if grammar.accepts(text) != bool(re.fullmatch(pattern, text))]
    assert differ == []


@pytest.mark.parametrize("source", [r"([^\n]*\n){1,6}"])
def test_a_text_cut_at_the_token_limit_is_alive(source: str) -> None:
    """guidance-ai/guidance#726: after any number of legal tokens the matcher stands in a live state."""
    matcher, pick = GrammarMatcher(regex(source)), random.Random(3)
    for _ in range(5):
        assert matcher.accept_token(pick.choice([i for i in matcher.allowed_ids() if i > 2]))
        assert not matcher.has_no_token


def test_shorthand_classes_of_a_pattern_hold_inside_a_tools_parameters() -> None:
    """ggml-org/llama.cpp#27580."""
    parameters = {
        "type": "object",
        "properties": {"ver": {"type": "string", "pattern": "^\\d+\\.\\d+\\.\\d+$"}},
        "required": ["ver"],
        "additionalProperties": False,
    }
    content = {"type": "json_schema", "json_schema": parameters}
    tag = {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"}
    grammar = toy_compiler().compile_structural_tag({"type": "structural_tag", "format": tag})
    assert grammar.accepts('<call>{"ver":"1.20.3"}</call>')
    assert not grammar.accepts('<call>{"ver":"1x2x3"}</call>')
    assert not grammar.accepts('<call>{"ver":"1.2"}</call>')
