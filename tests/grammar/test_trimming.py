from __future__ import annotations

from sglang_lite.grammar.graph import Graph
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import NEVER, Both, Bytes, Node, Ref, Special, Without, alternate, concat
from sglang_lite.grammar.trimming import Trimmed


def no_product(node: Both | Without) -> ByteDfa | None:
    raise AssertionError(f"not asked for: {node}")


def trimmed(start: Node, rules: dict[str, Node] | None = None) -> Trimmed:
    graph = Graph({}, no_product)
    first, last = graph.add_part(start)
    return Trimmed(graph, first, last, {name: graph.add_part(node) for name, node in (rules or {}).items()})


def test_states_with_one_empty_edge_stand_for_the_state_behind() -> None:
    made = trimmed(parse_regex("((a|bc)|(d|ef))"))
    assert made.num_states == 2
    assert len(made.empty) == 0
    assert made.ends.tolist().count(1) == 1


def test_what_has_no_end_or_no_begin_is_gone() -> None:
    made = trimmed(alternate([concat([Bytes(b"a"), NEVER]), concat([NEVER, Bytes(b"b")]), Bytes(b"c")]))
    assert (made.num_states, len(made.edges)) == (2, 1)
    gone = trimmed(concat([Bytes(b"a"), NEVER]))
    assert (gone.num_states, gone.start) == (0, -1)


def test_a_reference_lives_with_its_rule_and_with_what_follows() -> None:
    endless = concat([Bytes(b"("), Ref("endless"), Bytes(b")")])
    made = trimmed(
        alternate([Ref("endless"), concat([Ref("good"), NEVER]), Bytes(b"x")]),
        {"endless": endless, "good": Bytes(b"g")},
    )
    assert made.live_rules == {}
    assert len(made.refs) == 0
    assert made.num_states == 2


def test_rules_that_live_keep_their_borders() -> None:
    nested = alternate([concat([Bytes(b"("), Ref("r"), Bytes(b")")]), Special(3)])
    made = trimmed(Ref("r"), {"r": nested, "unused": Bytes(b"u")})
    assert set(made.live_rules) == {"r"}
    first, last = made.live_rules["r"]
    assert made.entries[made.graph.names["r"]] == first
    assert made.ends[last] == 1
    assert made.bare_ends[last]
    assert len(made.refs) == 2
    assert made.specials[:, 1].tolist() == [3]
