"""Decisions about languages of characters, against `re`."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.json_schema.languages import (
    ANY_TEXT,
    difference,
    intersection,
    is_empty,
    lengths,
    literals,
    matches,
    union,
)
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.syntax import NEVER

PATTERNS = ["^a", "b$", "^[ab]*$", "ab|ba", "^a{2,3}$", "", "^(ab)+$", "^[^b]+$", "é"]
TEXTS = st.text("abé", max_size=5)


@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS), TEXTS)
def test_set_operations_follow_membership(left: str, right: str, text: str) -> None:
    in_left, in_right = (re.search(pattern, text) is not None for pattern in (left, right))
    first, second = pattern_language(left), pattern_language(right)
    assert matches(first, text) == in_left
    assert matches(union([first, second]), text) == (in_left or in_right)
    assert matches(intersection([first, second]), text) == (in_left and in_right)
    assert matches(difference(first, second), text) == (in_left and not in_right)


@given(st.sampled_from(PATTERNS), TEXTS)
def test_lengths_bound_the_texts(pattern: str, text: str) -> None:
    low, high = lengths(pattern_language(pattern))
    if re.search(pattern, text):
        assert low <= len(text)
        assert high is None or len(text) <= high


def test_empty_intersections_and_differences_are_found() -> None:
    assert is_empty(intersection([pattern_language("^a"), pattern_language("^b")]))
    assert is_empty(difference(pattern_language("^ab"), pattern_language("a")))
    assert not is_empty(difference(pattern_language("a"), pattern_language("^ab")))
    assert not is_empty(ANY_TEXT)


def test_finite_languages_are_filtered_at_once() -> None:
    assert intersection([literals(["ab", "b"]), pattern_language("^a")]) == literals(["ab"])
    assert difference(literals(["ab", "b"]), pattern_language("b")) == NEVER
