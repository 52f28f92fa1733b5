from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import GrammarError, InvalidGrammarError, UnsupportedGrammarError
from tests.grammar.recursive import compiled_json
from tests.grammar.toy import CONTROL, toy_compiler

JSON = r"""
?start: value
?value: object
      | array
      | STRING
      | NUMBER
      | "true" | "false" | "null"   // constants
object: "{" WS? [pair (WS? "," WS? pair)*] WS? "}"
pair: STRING WS? ":" WS? value
array: "[" WS? [value (WS? "," WS? value)*] WS? "]"
STRING: "\"" /([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*/ "\""
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/
WS: /[ \t\r\n]+/
"""


def lark(text: str) -> CompiledGrammar:
    return toy_compiler().compile_lark(text)


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ('start: "a" | "b" "c"', ["a", "bc"], ["ab"]),
        ('start: A b\nA: "x"+\nb: "y"~2', ["xxyy"], ["xy"]),
        ('start: "a"~1..3 "b"{2} ["c"]', ["abb", "aaabbc"], ["aaaabb", "abbcc"]),
        ('start: "Yes"i /[0-9]+\\/x/', ["yES1/x"], ["Yes/x"]),
        ("start: /ab+/i /./s", ["ABb\n"], ["a\n"]),
        ('start: "a".."c" D\nD: "0".."9"', ["a0", "c9"], ["d0"]),
        ('start: (\n "a"\n | "b"\n)\n\n// end\n', ["a", "b"], ["ab"]),
        ('start.2: x\n!x: "q"\n   | "r"', ["q", "r"], [""]),
        ("%import common.INT\n%import common.WORD -> W\nstart: INT W", ["12ab"], ["12"]),
        ('start: "(" start ")" | "x"', ["((x))"], ["(x"]),
        ('start: start "+" /[0-9]/ | /[0-9]/', ["1+2+3"], ["1+"]),
        ("start: /^a$/ /b|^c/", ["ab", "ac"], ["a"]),
    ],
)
def test_what_is_written_is_what_is_accepted(text: str, accepted: list[str], rejected: list[str]) -> None:
    compiled = lark(text)
    assert [one for one in accepted if not compiled.accepts(one)] == []
    assert [one for one in rejected if compiled.accepts(one)] == []


@given(st.text(alphabet='{}[]",:1e-.tu \n\\', max_size=8))
def test_json_in_lark_is_json(text: str) -> None:
    assert lark(JSON).accepts(text) == compiled_json().accepts(text)


def test_terminals_are_not_greedy() -> None:
    compiled = lark('start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed" | "er"')
    assert compiled.accepts("listed")
    assert compiled.accepts("listener")


def test_special_tokens_by_id() -> None:
    compiled = lark(f"start: <[{CONTROL}]>")
    assert compiled.advance_token(compiled.start_state, CONTROL) >= 0


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('start: "a"\n  b', InvalidGrammarError, "line 2, column 3"),
        ("start: b", InvalidGrammarError, "line 1, column 8: the rule b is not defined"),
        ('x: "a"', InvalidGrammarError, "there is no rule start"),
        ('start: "a"\nstart: "b"', InvalidGrammarError, "line 2, column 1: the rule start is defined twice"),
        ('start: "a', InvalidGrammarError, "not closed"),
        ("start: /a", InvalidGrammarError, "line 1, column 8: the regular expression is not closed"),
        ("start: /a(/", InvalidGrammarError, "not closed"),
        ("start: /(?=a)/", UnsupportedGrammarError, "look-ahead"),
        ('start: "ab".."c"', InvalidGrammarError, "two single characters"),
        ('start: "a" -> x', UnsupportedGrammarError, "alias"),
        ('start: "a"\n%ignore " "', UnsupportedGrammarError, "line 2, column 1: the directive %ignore"),
        ("%import common.XYZ\nstart: XYZ", UnsupportedGrammarError, "common.XYZ is not known"),
        ("%import python.NAME", UnsupportedGrammarError, "only %import common"),
        ('start{a}: "x"', UnsupportedGrammarError, "templates"),
        ('start[capture]: "x"', UnsupportedGrammarError, "attributes"),
        ("start: <think>", UnsupportedGrammarError, "by id only"),
        ("start: &a", UnsupportedGrammarError, "'&' begins no item"),
    ],
)
def test_faults_are_named_with_their_place(text: str, error: type[GrammarError], message: str) -> None:
    with pytest.raises(error, match=message):
        lark(text)


@given(st.text(alphabet='start:= "a|()[]{}*+?\\n/<>.-~1%i', max_size=20))
def test_any_text_is_a_grammar_or_a_named_fault(text: str) -> None:
    for source in (text, f"start: {text}"):
        with contextlib.suppress(GrammarError):
            lark(source)
