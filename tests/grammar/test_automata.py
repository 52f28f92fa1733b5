from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.automata import build_nfa
from sglang_lite.grammar.charset import NOTHING
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.nfa import ByteNfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import Bytes, Chars, alternate, choices, concat


def nfa_of(pattern: str) -> ByteNfa:
    return build_nfa(parse_regex(pattern))


@pytest.mark.parametrize(
    "pattern", [r"a(xb)?|[^\x00-\U0010FFFF]z", r"(\w+ ){3,9}end", "(^a|b$)*c^|d", "猫|狗|[😀-🙏]", ""]
)
def test_every_state_lies_between_start_and_accept(pattern: str) -> None:
    """Only then is a non-empty set of states alive."""
    nfa = nfa_of(pattern)
    pairs = [
        (source, target)
        for offsets, targets in ((nfa.call_offsets, nfa.call_return), (nfa.empty_offsets, nfa.empty_targets))
        for source, target in zip(
            np.repeat(np.arange(nfa.num_states), np.diff(offsets)).tolist(), targets.tolist(), strict=True
        )
    ]
    (accept,) = np.flatnonzero(nfa.pops)
    for origin, arrows in ((nfa.start, pairs), (accept, [(target, source) for source, target in pairs])):
        seen = {origin}
        while found := {target for source, target in arrows if source in seen} - seen:
            seen |= found
        assert len(seen) == nfa.num_states


def test_bounded_repeats_are_linear() -> None:
    short, long = nfa_of(".{0,100}"), nfa_of(".{0,1000}")
    assert long.num_states < 11 * short.num_states
    assert len(long.empty_targets) + len(long.call_inner) < 11 * (len(short.empty_targets) + len(short.call_inner))


def test_no_edge_separates_bytes_of_one_class() -> None:
    nfa = nfa_of("[a-f]x|[c-z]y")
    for low, high in zip(nfa.inner_low.tolist(), nfa.inner_high.tolist(), strict=True):
        assert 0 <= low <= high < nfa.num_classes
    assert nfa.byte_class[ord("a")] == nfa.byte_class[ord("b")]
    assert nfa.byte_class[ord("b")] != nfa.byte_class[ord("c")]
    assert nfa.class_byte[nfa.byte_class[ord("x")]] == ord("x")
    assert nfa.class_byte[nfa.byte_class[ord("a")]] == -1


def test_a_language_without_texts_has_no_start() -> None:
    nfa = build_nfa(concat([Bytes(b"a"), Chars(NOTHING)]))
    assert nfa.start == -1
    assert nfa.num_states == 0


def test_choices_share_their_common_beginnings() -> None:
    nfa = build_nfa(choices([b"alpha one", b"alpha two", b"alpha", b""]))
    assert nfa.num_states == 2
    assert len(nfa.inner_offsets) - 1 == len(b"alpha onetwo") - 1
    build_nfa(choices([b"alpha one", b"alpha two"]), max_states=13)
    with pytest.raises(GrammarTooLargeError):
        build_nfa(choices([b"alpha one", b"alpha two"]), max_states=12)


def test_dead_options_leave_nothing_behind() -> None:
    assert build_nfa(alternate([Bytes(b"abc"), concat([Bytes(b"xyz"), Chars(NOTHING)])])).num_states == 2


def test_copies_of_a_character_class_share_its_spelling() -> None:
    one, many = nfa_of(r"\w"), nfa_of(r"(\w ){1000}")
    assert len(many.inner_offsets) == len(one.inner_offsets) + 1
    assert many.num_states == 2001


def test_the_limit_is_known_before_a_state_is_made() -> None:
    build_nfa(parse_regex("(ab|c.){2}"), max_states=11)
    with pytest.raises(GrammarTooLargeError, match="more than 11 states"):
        build_nfa(parse_regex("(ab|c.){3}"), max_states=11)
    with pytest.raises(GrammarTooLargeError):
        build_nfa(parse_regex("((a{99999}){99999}){99999}"))
