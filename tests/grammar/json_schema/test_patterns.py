"""Patterns of schemas: found anywhere, anchors anywhere, leading look-ahead, the ECMA dialect."""

from __future__ import annotations

import re

import pytest

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import matches
from sglang_lite.grammar.json_schema.patterns import pattern_language

PROBES = ["", "a", "b", "ab", "ba", "abc", "aXb", "a\nb", "1", "12", "-1.5", "Ab1", "@@a", "@a", ",a", "a,", "xay"]


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "b",
            "^b",
            "b$",
            "^a$|^b$",
            "^(|.*)$",
            "(^|,)a(,|$)",
            "^$",
            "a|^",
            "(^a)?b",
            "x*^a",
            "a$b",
            "^(?:a|b$)",
            "^.*$",
        ),
        *("^(?!@@)[@a]+$", "^(?=.*[A-Z])(?=.*[0-9])\\w+$", "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "^(?!a|b)."),
    ],
)
def test_a_pattern_is_searched_for(pattern: str) -> None:
    found = pattern_language(pattern)
    # Python's `$` also matches before a last line feed; no probe ends in one.
    assert [text for text in PROBES if matches(found, text) != (re.search(pattern, text) is not None)] == []


def test_the_dialect_is_that_of_ecma_script() -> None:
    assert not matches(pattern_language(r"^\d$"), "\u0663")
    assert not matches(pattern_language(r"^\w$"), "é")
    assert matches(pattern_language(r"^\s$"), "\ufeff")
    assert not matches(pattern_language(r"^.$"), "\u2028")
    assert matches(pattern_language(r"^[\w-.]+$"), "a-.")
    assert matches(pattern_language(r"^[^]$"), "\n")
    assert not matches(pattern_language("[]"), "")
    assert matches(pattern_language(r"^\cI$"), "\t")


@pytest.mark.parametrize("pattern", ["a(?=b)", "^(?!a)b|c", r"(a)\1", "(^a|b)*c", r"\bx"])
def test_what_is_not_offered_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedGrammarError):
        pattern_language(pattern)
