"""Texts and languages as JSON strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, difference
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.json_schema.spelling import base_rules, quoted, quoted_others, quoted_texts, spelled_text
from sglang_lite.grammar.syntax import Grammar, Node
from tests.support.grammar_oracle import recognises

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def _has(node: Node, text: str) -> bool:
    return recognises(Grammar(node, base_rules()), text)


@given(TEXTS)
def test_a_free_string_has_every_spelling(text: str) -> None:
    free = quoted(ANY_TEXT)
    assert _has(free, json.dumps(text))
    assert _has(free, json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '"\\ud800\\u0041"', '"\\udc00"', '"\\x41"', '"\\u12"', '"\n"', "'a'", '"a', '"\\"']
)
def test_what_is_no_string_is_not_written(text: str) -> None:
    assert not _has(quoted(ANY_TEXT), text)


def test_every_control_byte_is_escaped_and_delete_is_not() -> None:
    for code in range(0x20):
        assert not _has(quoted(ANY_TEXT), f'"{chr(code)}"')
        assert _has(quoted(pattern_language(f"^[\\x{code:02x}]$")), spelled_text(chr(code)).decode())
    assert _has(quoted(ANY_TEXT), '"\x7f"')


@given(st.frozensets(TEXTS, min_size=1, max_size=4), TEXTS)
def test_the_other_texts_are_all_but_the_given(texts: frozenset[str], text: str) -> None:
    assert _has(quoted_others(texts), spelled_text(text).decode()) == (text not in texts)
    assert not _has(quoted_others(["a"]), '"\\u0061"')


def test_a_difference_lets_no_escape_through() -> None:
    node = quoted(difference(ANY_TEXT, pattern_language("^a$")))
    assert _has(node, '"b"')
    assert not _has(node, '"a"')
    assert not _has(node, '"\\u0061"')


def test_listed_texts_have_one_spelling_and_lone_surrogates_none() -> None:
    assert _has(quoted_texts(['a"é', "\ud800"]), '"a\\"é"')
    with pytest.raises(UnsupportedGrammarError, match="lone surrogate"):
        spelled_text("\ud800")
