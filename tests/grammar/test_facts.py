from __future__ import annotations

from sglang_lite.grammar.facts import facts_of, size_of
from sglang_lite.grammar.syntax import (
    NEVER,
    Both,
    Bytes,
    Concat,
    Paths,
    Ref,
    Repeat,
    Special,
    TextEdge,
    Whole,
    alternate,
    concat,
)


def test_references_are_counted_and_their_copies_too() -> None:
    facts = facts_of(concat([Repeat(concat([Bytes(b"ab"), Ref("r")]), 1, 5), Ref("r"), Both(Ref("s"), Ref("r"))]))
    assert facts.uses == {"r": 3, "s": 1}
    assert facts.copies == {"r": 6, "s": 0}
    assert facts.has_combinations
    assert size_of(Repeat(Ref("r"), 0, 3), lambda name: 10) == 1 + 3 * 10


def test_what_is_in_a_node_is_found_at_any_depth() -> None:
    plain = facts_of(concat([Bytes(b"a"), Repeat(Ref("r"), 0, None)]))
    assert not any((plain.has_never, plain.has_tests, plain.has_specials, plain.has_combinations))
    inner = facts_of(Repeat(alternate([Whole(TextEdge(end=True)), Concat((Special(3), NEVER))]), 0, 2))
    assert (inner.has_never, inner.has_tests, inner.has_specials) == (True, True, True)
    paths = facts_of(Paths(4, ((0, Ref("a"), 1), (1, NEVER, 3))))
    assert (paths.uses, paths.has_never, paths.size) == ({"a": 1}, True, 5)


def test_facts_are_found_once_and_are_no_part_of_the_value() -> None:
    node = concat([Bytes(b"a"), Ref("r")])
    assert facts_of(node) is facts_of(node)
    assert node == concat([Bytes(b"a"), Ref("r")])
