from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import GrammarError, GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.matcher import GrammarMatcher
from tests.grammar.recursive import compiled_json
from tests.grammar.toy import CONTROL, EOS, brute_force_ids, random_walk, toy_compiler

# In the style of llama.cpp's json.gbnf, with its way of breaking lines.
JSON = r"""
root   ::= value
object ::=
  "{" ws (
    string ws ":" ws value ws
    ("," ws string ws ":" ws value ws)*
  )? "}"
value  ::= object | array | string | number | ("true" | "false" | "null")
array  ::= "[" ws ( value ws ("," ws value ws)* )? "]"
string ::= # a JSON string
  "\"" (
    [^"\\\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\""
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws ::= [ \t\n]{0,20}
"""
# In the style of the chess and arithmetic examples.
ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


def ebnf(text: str) -> CompiledGrammar:
    return toy_compiler().compile_ebnf(text)


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ('root ::= "a" | "b" "c"', ["a", "bc"], ["", "b", "ab"]),
        ('root ::= ("yes" | "no") "!"?', ["yes", "no!"], ["yesno", "!"]),
        ("root ::= [a-c]* [^a-c]+", ["abcx", "\n"], ["abc", ""]),
        ("root ::= [a-] [\\]] [\\-\\^] [-x]", ["a]^-", "-]-x"], ["b]--"]),
        ('root ::= "a"{2} "b"{1,} "c"{,2} "d"{0,1}', ["aab", "aabbccd"], ["ab", "aa", "aabccc"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\n\\t\\"\\\\" ', ['Aé😀\n\t"\\'], ["A"]),
        ('root ::= "\\ud83d\\ude00" [\\ud83d\\ude00]', ["😀😀"], ["😀"]),
        ("root ::= .", ["x", "\n", "猫"], ["", "xy"]),
        ('root ::= a-b a_b\na-b ::= "x"\na_b ::=\n  "y"\n  | "z"', ["xy", "xz"], ["x"]),
        ('root ::= ""', [""], ["a"]),
        ('root ::= | "a"', ["", "a"], ["aa"]),
        ('root ::= "a" # one\n# two\n  "b" # three', ["ab"], ["a"]),
        ('root ::= ( # inside\n "a"\n | "b"\n)+', ["abab"], [""]),
        ('root ::= "a" + "b" *', ["aab"], ["b"]),
        ('root ::= sum\nsum ::= sum "+" n | n\nn ::= [0-9]', ["1", "1+2+3"], ["+1", "1+"]),
        ('x ::= "never"\nroot ::= "a" root "b" | "-"', ["a-b", "aa-bb"], ["a-", "-b"]),
    ],
)
def test_what_is_written_is_what_is_accepted(text: str, accepted: list[str], rejected: list[str]) -> None:
    compiled = ebnf(text)
    assert [one for one in accepted if not compiled.accepts(one)] == []
    assert [one for one in rejected if compiled.accepts(one)] == []


@given(st.text(alphabet='{}[]",:1e-.tu \n\\', max_size=8))
def test_the_json_of_llama_cpp_is_json(text: str) -> None:
    assert ebnf(JSON).accepts(text) == compiled_json().accepts(text)


def test_arithmetic() -> None:
    compiled = ebnf(ARITHMETIC)
    assert compiled.accepts("1 +(x2*3)= 7\na=b\n")
    assert not compiled.accepts("1 += 7\n")


@pytest.mark.parametrize("text", [JSON, ARITHMETIC])
@given(st.integers(0, 1000))
def test_masks_are_those_of_brute_force(text: str, seed: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(ebnf(text))
    for _ in range(5):
        random_walk(matcher, rng, rng.randrange(4))
        assert matcher.allowed_ids() == brute_force_ids(matcher)


def test_special_tokens_by_id() -> None:
    matcher = GrammarMatcher(ebnf(f'root ::= "a" <[{CONTROL}]>'))
    assert matcher.accept_token(5 + ord("a"))
    assert matcher.allowed_ids() == [CONTROL]
    with pytest.raises(InvalidGrammarError, match=f"\\[{EOS}\\]"):
        ebnf(f"root ::= <[{EOS}]>")


def test_another_root() -> None:
    compiled = toy_compiler().compile_ebnf('a ::= "x"\nb ::= a a', root="b")
    assert compiled.accepts("xx")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('root ::= "a"\n  b', InvalidGrammarError, r"line 2, column 3: the rule b is not defined"),
        ('a ::= "x"', InvalidGrammarError, "there is no rule root"),
        ("", InvalidGrammarError, "there is no rule root"),
        ('root ::= "a"\nroot ::= "b"', InvalidGrammarError, "line 2, column 1: the rule root is defined twice"),
        ('root = "a"', InvalidGrammarError, "line 1, column 1: expected a rule"),
        ('root ::= "a', InvalidGrammarError, 'line 1, column 10: the text is not closed with "'),
        ("root ::= [a", InvalidGrammarError, "line 1, column 10: the class is not closed"),
        ("root ::= []", InvalidGrammarError, "a class without characters"),
        ("root ::= [z-a]", InvalidGrammarError, "the wrong way round"),
        ('root ::= ("a"', InvalidGrammarError, r"column 10: the group is not closed with \)"),
        ('root ::= "a")', InvalidGrammarError, "no opening one"),
        ('root ::= "a"{3,2}', InvalidGrammarError, "at least 3 and at most 2"),
        ('root ::= "a"{}', InvalidGrammarError, "expected a number"),
        ('root ::= "a"{,}', InvalidGrammarError, "expected a repeat"),
        ('root ::= "\\q"', InvalidGrammarError, r"the escape \\q is unknown"),
        ('root ::= "\\x4"', InvalidGrammarError, "needs 2 hexadecimal digits"),
        ('root ::= "\\ud800"', InvalidGrammarError, "lone surrogate"),
        ("root ::= * ", InvalidGrammarError, "expected a text, a class, a name or a group"),
        ('root ::= "a" root', InvalidGrammarError, "no text matches"),
        ('root ::= a\na ::= b "x" | "x"\nb ::= a "y"', UnsupportedGrammarError, r"left recursion \(.*\)"),
        ('root ::= "a" (= "b")', UnsupportedGrammarError, "look-ahead"),
        ("root ::= TagDispatch(x)", UnsupportedGrammarError, r"the function TagDispatch\(...\)"),
        ("root ::= <think>", UnsupportedGrammarError, "special tokens can be given by id"),
        ("root ::= " + "(" * 100 + '"a"' + ")" * 100, GrammarTooLargeError, "nested deeper"),
        ('root ::= "a"{999999999}', GrammarTooLargeError, "states"),
    ],
)
def test_faults_are_named_with_their_place(text: str, error: type[GrammarError], message: str) -> None:
    with pytest.raises(error, match=message):
        ebnf(text)


@given(st.text(alphabet='root:= "a|()[]{}*+?\\n#<>.-', max_size=20))
def test_any_text_is_a_grammar_or_a_named_fault(text: str) -> None:
    for source in (text, f"root ::= {text}"):
        with contextlib.suppress(GrammarError):
            ebnf(source)
