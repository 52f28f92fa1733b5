from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import InvalidGrammarError
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.structural_tags import StructuralTag
from sglang_lite.grammar.syntax import Bytes
from tests.grammar.recursive import json_grammar
from tests.grammar.toy import CONTROL, brute_force_ids, random_walk, toy_compiler

NUMBER = StructuralTag("<a>", parse_regex("[0-9]+"), "</a>")
WORD = StructuralTag("<ab=", parse_regex("[xy]*>"), "!")
JSON = StructuralTag("<tool>", json_grammar(), "</tool>")


def tags(*tags: StructuralTag, triggers: list[str | int] | None = None, **options: bool) -> CompiledGrammar:
    return toy_compiler().compile_structural_tags(tags, triggers, **options)


def reference(text: str, needed: int = 0) -> bool:
    """By hand: NUMBER and WORD behind the trigger `<a`."""
    count = 0
    while (at := text.find("<a")) >= 0:
        rest = text[at:]
        ends = [
            len(begin) + length + len(end)
            for begin, allowed, end in (("<a>", "0123456789", "</a>"), ("<ab=", "xy", ">!"))
            if rest.startswith(begin)
            for length in range(len(rest))
            if all(char in allowed for char in rest[len(begin) : len(begin) + length])
            and (length or allowed == "xy")
            and rest[len(begin) + length :].startswith(end)
        ]
        if not ends:
            return False
        text, count = rest[ends[0] :], count + 1
    return count >= needed


PIECES = st.lists(
    st.sampled_from(["<a>1</a>", "<ab=x>!", "<a", "<", "a", "12", "</a>", ">", " b", "é"]), max_size=6
).map("".join)


@given(PIECES)
def test_free_text_with_tags(text: str) -> None:
    assert tags(NUMBER, WORD, triggers=["<a"]).accepts(text) == reference(text)
    assert tags(NUMBER, WORD, triggers=["<a"], at_least_one=True).accepts(text) == reference(text, 1)


@given(PIECES)
def test_the_begins_are_the_triggers_if_none_are_given(text: str) -> None:
    """Then `<a` alone is free text."""
    without_begin = text.replace("<a>1</a>", "").replace("<ab=x>!", "")
    if "<a>" not in without_begin and "<ab=" not in without_begin:
        assert tags(NUMBER, WORD).accepts(text)


def test_a_text_may_end_with_the_first_tag() -> None:
    compiled = tags(NUMBER, stop_after_first=True)
    assert compiled.accepts("free text")
    assert compiled.accepts("so <a>1</a>")
    assert not compiled.accepts("so <a>1</a> on")
    only = tags(NUMBER, stop_after_first=True, at_least_one=True)
    assert only.accepts("so <a>1</a>")
    assert not only.accepts("so on")


def test_a_grammar_inside_a_tag_keeps_its_rules_to_itself() -> None:
    compiled = tags(JSON, StructuralTag("<other>", json_grammar(), "."))
    assert compiled.accepts('Let me see. <tool>{"a": [1, {}]}</tool> and <other>[]. done')
    assert not compiled.accepts("<tool>[</tool>")


def test_position_tests_of_the_content_speak_of_the_content() -> None:
    assert tags(StructuralTag("<a>", parse_regex("^x$"), "</a>")).accepts("so <a>x</a>!")


def test_special_tokens_can_begin_and_end_a_tag() -> None:
    compiled = tags(StructuralTag(CONTROL, Bytes(b"x"), CONTROL), StructuralTag("<a>", Bytes(b"y")))
    matcher = GrammarMatcher(compiled)
    assert CONTROL in matcher.allowed_ids()
    assert matcher.accept_token(CONTROL)
    assert not matcher.is_accepting
    assert matcher.accept_token(5 + ord("x"))
    assert matcher.allowed_ids() == [CONTROL]
    assert matcher.accept_token(CONTROL)
    assert matcher.is_accepting
    assert compiled.accepts("free <a>y free")


def test_a_schema_in_a_tag_keeps_its_keys_apart() -> None:
    schema = {"type": "object", "properties": {"ab": {"const": 1}}, "additionalProperties": {"const": 2}}
    tag = {"begin": "<t>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</t>"}
    format_ = {"type": "triggered_tags", "triggers": ["<t>"], "tags": [tag]}
    compiled = toy_compiler().compile_structural_tag({"type": "structural_tag", "format": format_})
    assert compiled.accepts('x<t>{"ab":1,"a":2,"abc":2}</t>')
    assert not compiled.accepts('x<t>{"ab":2}</t>')


@given(st.integers(0, 1000))
def test_masks_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(tags(NUMBER, WORD, triggers=["<a"]))
    matcher.accept_tokens(5 + byte for byte in rng.choice([b"", b"a<", b"<a", b"x<a>1", b"<a>1</a>z"]))
    for _ in range(3):
        assert matcher.allowed_ids() == brute_force_ids(matcher)
        random_walk(matcher, rng, 1)


@pytest.mark.parametrize(
    ("made", "triggers", "message"),
    [
        ([], None, "no tags"),
        ([NUMBER], ["<b"], "no tag begins with the trigger '<b'"),
        ([NUMBER, WORD], ["<a>"], "no trigger begins the tag '<ab='"),
        ([NUMBER], [""], "empty text"),
        ([StructuralTag("", Bytes(b"x"))], None, "empty text"),
    ],
)
def test_tags_and_triggers_must_fit(made: list[StructuralTag], triggers: list[str | int] | None, message: str) -> None:
    with pytest.raises(InvalidGrammarError, match=message):
        tags(*made, triggers=triggers)
