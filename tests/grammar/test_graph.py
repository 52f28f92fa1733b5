from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.grammar.automata import build_nfa
from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.facts import size_of
from sglang_lite.grammar.graph import Graph
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
    Paths,
    Ref,
    Repeat,
    Special,
    Whole,
    Without,
    concat,
)
from sglang_lite.grammar.tables import LazyTables


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


def test_paths_are_drawn_with_one_state_each_and_read_every_way() -> None:
    arrows = ((0, Bytes(b"a"), 1), (0, Bytes(b"b"), 2), (1, Bytes(b"c"), 2), (1, Bytes(b"a"), 1), (1, Bytes(b""), 2))
    node = Paths(3, arrows)
    assert added(node).num_states == 3
    nfa = build_nfa(concat([Bytes(b"<"), node, Bytes(b">")]))
    tables = LazyTables(nfa, max_bytes=1 << 20)
    for text, right in ((b"<a>", 1), (b"<b>", 1), (b"<aaac>", 1), (b"<>", 0), (b"<ab>", 0), (b"<bc>", 0)):
        data = np.frombuffer(text, np.uint8).copy()
        assert tables.is_accepting(tables.advance(tables.start, data, 0, len(data))) == right, text


def test_a_part_that_two_graphs_share_is_drawn_alike_in_both() -> None:
    """Numbers of labels differ where a graph has others before."""
    word = Repeat(Choices((b"begin", b"end")), 4, 9)
    alone, beside = Graph({}, no_product), Graph({}, no_product)
    beside.add_part(Bytes(b"x"))
    (_, end), (first, last) = alone.add_part(word), beside.add_part(word)
    assert last - first == end
    assert all(
        beside.labels[mine] is alone.labels[other]
        for mine, other in zip(beside.edges.carried[1:], alone.edges.carried, strict=True)
    )
    assert beside.edges.target[1:] == [first + target for target in alone.edges.target]
