from __future__ import annotations

import random
import re
import warnings

import interegular
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.errors import GrammarError, GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.regex import MAX_NESTING, parse_regex
from sglang_lite.grammar.vocab import TokenVocab
from tests.grammar.patterns import patterns, texts
from tests.grammar.toy import regex

INVALID = ["(", "[", "*a", "(?P<x>a", "\\", "[z-a]", "a**", ")", "a)", "a{2,1}", "+", "a|*", "(?i", "(?z:a)", "(?P<1>a)", "(?<>a)", "(?:a", "^*", "(?#c", "a(?i)b", "(?ia-i:b)", "(?", "(?-:a)", "{0}", "a|{1,2}", "({3})", "{,5}a"]  # fmt: skip
UNSUPPORTED = {
    "(?=a)b": "look-ahead", "(?!a)b": "negative look-ahead", "(?<=a)b": "look-behind", "(?<!a)b": "negative look-behind", r"(a)\1": "back-reference",
    "(?P<x>a)(?P=x)": "back-reference", "(?>a)": "atomic", "a++": "possessive", "a{2}+": "possessive", r"a\b": "word boundary", "(a)(?(1)b)": "conditional",
    "(?m)^a": "multi-line", "(?x)a": "verbose", "(?x:a)": "verbose",
}  # fmt: skip
LEGAL = [
    "^(|.*)$", "^(.*)$", "^ab$", "a|", "[\x00-\u2e7f]+", r"[A-Za-z0-9.,!?'\"\-_<> ]+", "(?:ab)?c", r"\.", '[^"]*', "(?i:yes)",
    "(|a)*b", "(a|b)*?abb", "a{,3}", "a{2,}", "x{", "x{a}", "x{}", "a{,}", "(?#note)a", "", "()", "(?P<n>a)|b", r"\Aa\Z", "(^a|b)+", "(a$|b)+", "a^b", "(?i)straſse",
    r"(?a)\w+", r"(?s).", "(?s:.)(?-s:.)?", r"[\s\S]+", r"\u6b6a", "[😨]{1,4}", "(a?){3,5}b", "((a*)*)*", "(?:^|a)+b", r"\$\^", "[]]", "[^]]",
]  # fmt: skip
PROBES = [
    "", "a", "b", "ab", "abb", "aab", "c", "abc", ".", "x", "x{", "x{}", "x{a}", "aaa", "aaaa", "yes", "YES", "yeſ", "Straſse", "STRASSE", "é", "\u2e7f", "\u2e80",
    "a\nb", "\n", "歪", "😨", "😨😨", "hello <b>, it's", '"', "$^", "]", "[", "ba", "a b", "_é9",
]  # fmt: skip


@pytest.mark.parametrize("pattern", INVALID)
def test_malformed_patterns_are_invalid_and_name_the_place(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(pattern)
    with pytest.raises(InvalidGrammarError, match="position") as caught:
        parse_regex(pattern)
    assert caught.value.position is not None
    assert 0 <= caught.value.position <= len(pattern)


@pytest.mark.parametrize(("pattern", "name"), UNSUPPORTED.items())
def test_constructs_that_are_not_offered_are_refused_by_name(pattern: str, name: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=name):
        parse_regex(pattern)


@pytest.mark.parametrize("pattern", LEGAL)
def test_legal_patterns_accept_what_fullmatch_accepts(pattern: str) -> None:
    compiled = regex(pattern)
    assert [text for text in PROBES if compiled.accepts(text)] == [
        text for text in PROBES if re.fullmatch(pattern, text)
    ]


@settings(max_examples=300)
@given(patterns, st.lists(texts, min_size=1, max_size=8), st.data())
def test_random_patterns_accept_what_fullmatch_accepts(pattern: str, probes: list[str], data: st.DataObject) -> None:
    compiled = regex(pattern)
    oracle = re.compile(pattern)
    if not compiled.is_empty:
        probes.append(random_member(compiled, random.Random(data.draw(st.integers(0, 1000)))))
    for text in probes:
        assert compiled.accepts(text) == bool(oracle.fullmatch(text)), text


def random_member(compiled: CompiledGrammar, rng: random.Random) -> str:
    """A short random text of the language (shortest way out after a few random bytes)."""
    fsm = compiled.compressed(max_states=50_000)
    outgoing = {state: [edge for edge in fsm.edges if edge.source == state] for state in fsm.states}
    distance = dict.fromkeys(fsm.accepting, 0)
    while True:
        nearer = {
            state: 1 + min(distance[edge.target] for edge in edges if edge.target in distance)
            for state, edges in outgoing.items()
            if state not in distance and any(edge.target in distance for edge in edges)
        }
        if not nearer:
            break
        distance |= nearer
    state, text, wander = fsm.start, b"", rng.randrange(4)
    while state not in fsm.accepting or (wander > 0 and outgoing[state]):
        edges = outgoing[state]
        if wander <= 0:
            edges = [edge for edge in edges if distance[edge.target] < distance[state]]
        edge = rng.choice(edges)
        low, high = rng.choice(edge.first)
        text += bytes([rng.randint(low, high)]) + edge.run
        state = edge.target
        wander -= 1
    return text.decode()


@pytest.mark.parametrize(
    "pattern",
    [r"a(b|c)*d", r"[a-f]{2,4}x?", r"(cat|category)", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", r"(a|ab)(c|bcd)", r"x(yz?|z)*"],
)
def test_small_patterns_agree_with_an_independent_automaton(pattern: str) -> None:
    compiled = regex(pattern)
    oracle = interegular.parse_pattern(pattern).to_fsm()
    rng = random.Random(0)
    alphabet = "abcdefxyz019-.category"
    for _ in range(400):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(7)))
        assert compiled.accepts(text) == oracle.accepts(text)
    for text, _ in zip(map("".join, oracle.strings()), range(50), strict=False):
        assert compiled.accepts(text)


@given(st.text(alphabet="ab\\()[]{}*+?|^$.-,01:<>P=!iwd/ué", max_size=12))
@settings(max_examples=400)
def test_arbitrary_text_is_read_like_re_or_refused_with_a_grammar_error(pattern: str) -> None:
    """Where both read a pattern, they agree; what `re` finds malformed is never taken, but for the documented additions."""
    try:
        compiled = regex(pattern)
    except GrammarError:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a class that looks like a set operation of a later Python
            oracle = re.compile(pattern)
    except re.error:
        assume("(?<" not in pattern and "\\u{" not in pattern)
        pytest.fail(f"{pattern!r} is malformed")
    for text in ("", "a", "b", "ab", "1", "{", "a{", "\\", "é", "aa"):
        assert compiled.accepts(text) == bool(oracle.fullmatch(text))


def test_a_dollar_is_the_very_end() -> None:
    assert regex("a$").accepts("a")
    assert not regex("a$").accepts("a\n")
    assert regex("a$\n").is_empty


def test_text_that_utf8_cannot_spell_is_not_accepted() -> None:
    assert not regex(".").accepts("\ud800")
    assert regex("\ud800").is_empty
    assert not regex(".").accepts(b"\xed\xa0\x80")
    assert not regex(".").accepts(b"\xc0\x80")


def test_nesting_has_a_limit() -> None:
    parse_regex("(" * MAX_NESTING + "a" + ")" * MAX_NESTING)
    with pytest.raises(GrammarTooLargeError, match="nested"):
        parse_regex("(" * (MAX_NESTING + 1) + "a" + ")" * (MAX_NESTING + 1))


@pytest.mark.parametrize(
    "pattern",
    ["a{99999999}", "((a{1000}){1000}){1000}", r"(\w{1000}){1000}", "a{9999999999}", "(((a?){9000}){9000}){9000}"],
)
def test_patterns_that_would_explode_are_refused_at_once(pattern: str) -> None:
    with pytest.raises(GrammarTooLargeError):
        regex(pattern)


def test_repeats_of_nothing_cost_nothing() -> None:
    assert regex("((){1000}){1000}").accepts("")
    assert regex("((a{0}){1000}){1000}b").accepts("b")


def test_a_pattern_that_is_no_str_is_a_type_error() -> None:
    compiler = GrammarCompiler(TokenVocab([b"a", None], eos_ids=[1]))
    with pytest.raises(TypeError, match="bytes"):
        compiler.compile_regex(b"a")  # pyright: ignore[reportArgumentType]
