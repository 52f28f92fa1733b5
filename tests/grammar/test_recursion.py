from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import (
    EMPTY,
    Bytes,
    Grammar,
    Node,
    Ref,
    Special,
    alternate,
    both,
    concat,
    repeat,
    whole,
    without,
)
from tests.grammar.recursive import compiled_json, grammar
from tests.grammar.toy import CONTROL, EOS, brute_force_ids, random_tokens, random_walk, toy_compiler

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=pytest.fail)
    except ValueError:
        return False
    return text == text.strip()


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_every_json_text_is_accepted(value: object, indent: int | None, ascii_only: bool) -> None:
    assert compiled_json().accepts(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


@given(VALUES, st.data())
def test_a_changed_json_text_is_accepted_exactly_if_it_is_json(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    changed = (
        text[:at]
        + data.draw(st.sampled_from(['"', "{", "}", "[", "]", ",", ":", "1", "-", "e", "", " "]))
        + text[at + 1 :]
    )
    try:
        expected = is_json(changed)
    except pytest.fail.Exception:
        expected = False
    assert compiled_json().accepts(changed) == expected


@given(st.integers(0, 10_000))
def test_masks_of_a_recursive_grammar_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(compiled_json())
    assert matcher.accept_tokens(random_tokens(b'[{"ab": [', rng)) > 0
    for _ in range(6):
        assert matcher.allowed_ids() == brute_force_ids(matcher)
        random_walk(matcher, rng, 1)


def test_depth_has_no_bound_but_memory() -> None:
    depth = 5_000
    assert compiled_json().accepts("[" * depth + "]" * depth)
    assert not compiled_json().accepts("[" * depth + "]" * (depth - 1))


@given(st.integers(0, 10_000))
def test_a_walk_taken_back_leaves_no_trace(seed: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(compiled_json())
    random_walk(matcher, rng, 4)
    kept, mask = matcher.num_accepted, matcher.allowed_ids()
    twin = matcher.fork()
    random_walk(matcher, rng, 6)
    matcher.rollback(matcher.num_accepted - kept)
    assert matcher.allowed_ids() == twin.allowed_ids() == mask
    again = GrammarMatcher(compiled_json())
    again.accept_tokens(matcher._tokens)
    assert again._state == matcher._state


def balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += 1 if char == "(" else -1
        if depth < 0:
            return False
    return depth == 0


# The same language, written with nullable rules, tail calls, calls in the middle and a loop; none of it is left recursive.
BALANCED: dict[str, dict[str, Node]] = {
    "right": {"a": alternate([concat([Bytes(b"("), Ref("a"), Bytes(b")"), Ref("a")]), EMPTY])},
    "loop": {"a": repeat(concat([Bytes(b"("), Ref("a"), Bytes(b")")]), 0, None)},
    "two rules": {"a": repeat(Ref("b"), 0, None), "b": concat([Bytes(b"("), Ref("a"), Bytes(b")")])},
    "nullable twice": {
        "a": concat([Ref("c"), Ref("c")]),
        "c": alternate([EMPTY, concat([Bytes(b"("), Ref("a"), Bytes(b")"), Ref("c")])]),
    },
}


@pytest.mark.parametrize("name", BALANCED)
@given(st.text(alphabet="()", max_size=12))
def test_equal_languages_by_different_rules(name: str, text: str) -> None:
    assert grammar(name, Grammar(Ref("a"), BALANCED[name])).accepts(text) == balanced(text)


def test_a_rule_that_begins_with_itself_is_made_a_loop() -> None:
    rules = {
        "sum": alternate([concat([Ref("sum"), Bytes(b"+"), Ref("term")]), Ref("term")]),
        "term": alternate([parse_regex("[0-9]+"), concat([Bytes(b"("), Ref("sum"), Bytes(b")")])]),
    }
    compiled = grammar("sum", Grammar(Ref("sum"), rules))
    assert compiled.accepts("1+(2+34)+5")
    assert not compiled.accepts("1+")
    assert not compiled.accepts("+1")


@pytest.mark.parametrize(
    "rules",
    [
        {"a": concat([Ref("b"), Bytes(b"x")]), "b": alternate([Ref("a"), Bytes(b"y")])},
        {"a": concat([repeat(Bytes(b"z"), 0, 1), Ref("a"), Bytes(b"x")])},
        {
            "a": alternate([concat([Ref("n"), Ref("a"), Bytes(b"x")]), Bytes(b"y")]),
            "n": alternate([EMPTY, concat([Bytes(b"n"), Ref("n")])]),
        },
    ],
    ids=["through another rule", "behind an optional part", "behind a nullable rule"],
)
def test_other_left_recursion_is_refused_by_name(rules: dict[str, Node]) -> None:
    rules["a"] = alternate([rules["a"], Bytes(b"-")])
    with pytest.raises(UnsupportedGrammarError, match=r"left recursion \(.*a.*\)"):
        grammar("left " + repr(rules), Grammar(Ref("a"), rules))


def test_a_rule_that_ends_with_itself_needs_no_stack() -> None:
    rules: dict[str, Node] = {"a": alternate([concat([Bytes(b"x"), Ref("a")]), Bytes(b"y")])}
    compiled = grammar("tail", Grammar(Ref("a"), rules))
    assert compiled.accepts("x" * 1000 + "y")
    assert compiled.statistics().stack_cells == 1
    assert compiled.statistics().dfa_states <= 3


def test_rules_without_an_end_and_rules_out_of_reach_leave_nothing() -> None:
    rules: dict[str, Node] = {
        "a": alternate([concat([Bytes(b"x"), Ref("endless")]), Bytes(b"y")]),
        "endless": concat([Bytes(b"("), Ref("endless"), Bytes(b")")]),
        "unused": concat([Ref("unused"), Bytes(b"z")]),
    }
    compiled = grammar("trimmed", Grammar(Ref("a"), rules))
    assert compiled.advance_bytes(compiled.start_state, b"x") == -1
    assert compiled.accepts("y")
    assert grammar("empty", Grammar(Ref("endless"), rules)).is_empty


def test_a_missing_rule_is_named() -> None:
    with pytest.raises(InvalidGrammarError, match="'nowhere'"):
        grammar("missing", Grammar(concat([Bytes(b"a"), Ref("nowhere")])))


def test_recursion_inside_an_intersection_is_refused_by_name() -> None:
    rules: dict[str, Node] = {
        "r": alternate([concat([Bytes(b"("), Ref("r"), Bytes(b")")]), Bytes(b"x")]),
        "plain": Bytes(b"abc"),
    }
    for made in (both(Ref("r"), parse_regex(".*")), without(parse_regex(".*"), concat([Bytes(b"a"), Ref("r")]))):
        with pytest.raises(UnsupportedGrammarError, match="'r', which is recursive"):
            grammar("product " + repr(made), Grammar(made, rules))
    compiled = grammar("product of a plain rule", Grammar(without(parse_regex("[a-z]{3}"), Ref("plain")), rules))
    assert compiled.accepts("abd")
    assert not compiled.accepts("abc")


def test_position_tests_of_a_rule_speak_of_the_rules_own_text() -> None:
    compiled = grammar("own edges", Grammar(concat([Bytes(b"<"), Ref("r"), Bytes(b">")]), {"r": parse_regex("^a|b$")}))
    assert compiled.accepts("<a>")
    assert compiled.accepts("<b>")
    assert not compiled.accepts("a>")
    same = grammar("own edges of a part", Grammar(concat([Bytes(b"<"), whole(parse_regex("^a|b$")), Bytes(b">")])))
    assert same.accepts("<b>")
    rules: dict[str, Node] = {"r": alternate([concat([Bytes(b"("), Ref("r")]), parse_regex("^a$")])}
    with pytest.raises(UnsupportedGrammarError, match="position test"):
        grammar("edges and rules", Grammar(Ref("r"), rules))


def test_a_special_token_is_a_step_of_its_own() -> None:
    compiled = grammar("special", Grammar(concat([Bytes(b"a"), Special(CONTROL), Bytes(b"b")])))
    matcher = GrammarMatcher(compiled)
    assert CONTROL not in matcher.allowed_ids()
    matcher.accept_tokens(random_tokens(b"a", random.Random(0)))
    assert matcher.allowed_ids() == [CONTROL]
    assert matcher.forced_bytes() == b""
    assert not compiled.accepts("a<|end|>b")
    assert matcher.accept_token(CONTROL)
    matcher.accept_tokens(random_tokens(b"b", random.Random(0)))
    assert matcher.is_accepting
    matcher.rollback(2)
    assert matcher.allowed_ids() == [CONTROL]


@pytest.mark.parametrize("token_id", [EOS, 20, 10_000])
def test_only_special_tokens_that_end_nothing_can_be_named(token_id: int) -> None:
    with pytest.raises(InvalidGrammarError, match=f"\\[{token_id}\\]"):
        grammar(f"special {token_id}", Grammar(Special(token_id)))


def test_a_grammar_too_ambiguous_is_refused_where_it_shows() -> None:
    """Every split of the brackets into two kinds is a stack of its own, twice as many with each byte."""
    rules: dict[str, Node] = {
        "a": alternate(
            [concat([Bytes(b"("), Ref("a"), Bytes(b"1")]), concat([Bytes(b"("), Ref("a"), Bytes(b"2")]), Bytes(b"x")]
        )
    }
    compiled = grammar("ambiguous", Grammar(Ref("a"), rules))
    assert compiled.accepts("((x12")
    with pytest.raises(GrammarTooLargeError, match=r"places at once|bytes"):
        compiled.accepts("(" * 40)
    assert compiled.accepts("(((x121")


def test_an_equal_source_is_compiled_once() -> None:
    assert compiled_json() is compiled_json()
    assert compiled_json().vocab is toy_compiler().vocab
