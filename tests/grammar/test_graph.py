from __future__ import annotations

import pytest

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.graph import Graph, size_of
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.spelling import BYTES
from sglang_lite.grammar.syntax import (
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Node,
    Ref,
    Repeat,
    Special,
    Whole,
    Without,
    concat,
)


def no_product(node: Both | Without) -> ByteDfa | None:
    raise AssertionError(f"not asked for: {node}")


def added(node: Node, rules: dict[str, Node] | None = None) -> Graph:
    graph = Graph(rules or {}, no_product)
    graph.add(node, graph.new_state())
    return graph


NODES = [
    "abc", "a(b|cd)e", "[ab]{2,5}", "(x|yz){3,}", "(a?b*)+c{0,4}", "cat|category|dog",
]  # fmt: skip


@pytest.mark.parametrize("pattern", NODES)
def test_the_size_is_known_before_a_state_is_made(pattern: str) -> None:
    node = parse_regex(pattern)
    assert added(node).num_states <= 1 + size_of(node, lambda name: 1)


def test_sizes_of_all_kinds_of_nodes() -> None:
    parts = (Bytes(b"ab"), Ref("r"), Special(3), Whole(Bytes(b"c")), Choices((b"d", b"de")))
    assert size_of(Concat(parts), lambda name: 10) == 2 + 10 + 1 + 2 + 3
    assert size_of(Repeat(Alternate(parts[:2]), 2, 4), lambda name: 10) == 1 + 4 * 13


def test_references_are_replaced_or_kept() -> None:
    assert added(Ref("r"), {"r": Bytes(b"ab")}).refs.source == []
    graph = added(concat([Bytes(b"a"), Ref("r")]))
    assert graph.refs.by_source() == {1: [(graph.names["r"], 2)]}


def test_a_part_keeps_references_and_special_tokens_when_it_is_moved() -> None:
    graph = Graph({}, no_product)
    graph.new_state()
    first, last = graph.add_part(concat([Special(5), Ref("r")]))
    assert (first, last) == (1, 3)
    assert graph.specials.by_source() == {1: [(5, 2)]}
    assert graph.refs.by_source() == {2: [(graph.names["r"], 3)]}


def test_position_tests_are_gone_from_a_part() -> None:
    graph = Graph({}, no_product)
    graph.add_part(parse_regex("^a$|b^c"))
    assert graph.tests.source == []
    labels = [graph.labels[index] for index in graph.edges.carried]
    assert any(label is BYTES[ord("a")] for label in labels)
    assert not any(label is BYTES[ord("c")] for label in labels)


def test_position_tests_beside_references_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedGrammarError, match="rules r, s "):
        Graph({}, no_product).add_part(concat([parse_regex("^a"), Ref("s"), Ref("r")]))


def test_copies_of_a_set_share_their_label() -> None:
    graph = added(Repeat(Chars(parse_regex("[a-c]").charset), 5, 5))  # pyright: ignore[reportAttributeAccessIssue]
    assert graph.edges.carried == [0] * 5


def test_a_text_is_one_edge() -> None:
    assert added(Bytes(b"a long text")).num_states == 2
    assert added(Choices((b"", b"a", b"bc"))).num_states == 2
