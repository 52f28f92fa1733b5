from __future__ import annotations

import random

import pytest

from sglang_lite.grammar.compressed import CompressedEdge, CompressedFsm
from sglang_lite.grammar.errors import GrammarTooLargeError
from tests.grammar.toy import regex


def accepts(fsm: CompressedFsm, text: bytes) -> bool:
    """Read `text` edge by edge."""
    state = fsm.start
    while text:
        ways = [
            edge
            for edge in fsm.edges
            if edge.source == state
            and any(low <= text[0] <= high for low, high in edge.first)
            and text[1:].startswith(edge.run)
        ]
        if len(ways) != 1:
            assert not ways, "two edges for one byte"
            return False
        state, text = ways[0].target, text[1 + len(ways[0].run) :]
    return state in fsm.accepting


def test_a_literal_is_one_edge() -> None:
    fsm = regex("hello").compressed()
    assert fsm.num_states == 6
    assert [(edge.first, edge.run) for edge in fsm.edges] == [(((104, 104),), b"ello")]
    assert len(fsm.states) == 2


def test_runs_inside_a_pattern_are_merged() -> None:
    """`Thought: `, the choice, and the brackets are edges, not states."""
    fsm = regex(r"(?a)Thought: [a-z]+\nAction: (search|look)\[\d\]").compressed()
    assert CompressedEdge(fsm.start, fsm.edges[0].target, ((ord("T"), ord("T")),), b"hought: ") in fsm.edges
    assert fsm.num_states == 32
    assert len(fsm.states) == 6


@pytest.mark.parametrize(
    "pattern", ["(cat|category|dog)s?", r"(?a)\d{1,3}(, \d{1,3}){0,3}", "猫(狗|😀)+é?", "", "a(xb)?"]
)
def test_the_compressed_machine_accepts_the_same_texts(pattern: str) -> None:
    compiled = regex(pattern)
    fsm = compiled.compressed()
    rng = random.Random(0)
    probes = [
        "cat",
        "cats",
        "categorys",
        "dogs",
        "category",
        "1, 22",
        "1,2",
        "猫狗",
        "猫😀狗é",
        "猫",
        "",
        "a",
        "ax",
        "axb",
    ]
    probes += ["".join(rng.choice("catsdog1, 猫狗axb") for _ in range(rng.randrange(6))) for _ in range(100)]
    for text in probes:
        assert accepts(fsm, text.encode()) == compiled.accepts(text)


def test_an_empty_language_has_an_empty_machine() -> None:
    assert regex("a^").compressed() == CompressedFsm(-1, (), frozenset(), (), 0)


def test_a_machine_too_large_to_draw_is_an_error() -> None:
    with pytest.raises(GrammarTooLargeError, match="more than 50 states"):
        regex("[ab]{100}").compressed(max_states=50)
