from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.errors import InvalidGrammarError
from sglang_lite.grammar.rules import components, parts_of, plan_rules
from sglang_lite.grammar.syntax import Bytes, Grammar, Node, Ref, Repeat, Whole, alternate, concat, repeat


def test_rules_that_recurse_are_entered_and_small_ones_are_put_in_place() -> None:
    large = concat(
        [
            repeat(alternate([Bytes(b"ab"), concat([Bytes(b"c"), repeat(Bytes(b"d"), 0, 3)])]), 0, 4),
            *[repeat(Bytes(b"z"), 0, 9)] * 8,
        ]
    )
    rules: dict[str, Node] = {
        "loop": alternate([concat([Bytes(b"("), Ref("loop"), Ref("large"), Bytes(b")")]), Ref("small")]),
        "small": Bytes(b"x"),
        "large": large,
        "unused": Ref("nowhere"),
    }
    plan = plan_rules(Grammar(concat([Ref("loop"), Ref("large"), Ref("small")]), rules))
    assert set(plan.called) == {"loop", "large"}
    assert set(plan.inlined) == {"small"}


def test_a_rule_used_once_is_put_in_place_whatever_its_size() -> None:
    chain: dict[str, Node] = {f"r{i}": concat([Bytes(b"a"), Ref(f"r{i + 1}")]) for i in range(100)}
    plan = plan_rules(Grammar(Ref("r0"), chain | {"r100": Bytes(b"b")}))
    assert 0 < len(plan.called) < 10  # but not in one piece: recursion over syntax has a bound
    assert plan_rules(Grammar(Bytes(b"a"), {"r": Ref("r")})).called == {}


def test_left_recursion_becomes_a_loop() -> None:
    rules: dict[str, Node] = {"a": alternate([concat([Ref("a"), Bytes(b"x")]), Ref("a"), Bytes(b"y")])}
    plan = plan_rules(Grammar(Ref("a"), rules))
    assert plan.inlined["a"] == concat([Bytes(b"y"), Repeat(Bytes(b"x"), 0, None)])


def test_position_tests_of_a_rule_are_its_own() -> None:
    from sglang_lite.grammar.regex import parse_regex

    plan = plan_rules(Grammar(Ref("r"), {"r": parse_regex("^a")}))
    assert isinstance(plan.inlined["r"], Whole)


def test_a_missing_rule_is_named() -> None:
    with pytest.raises(InvalidGrammarError, match="'x'"):
        plan_rules(Grammar(repeat(Ref("x"), 0, 2)))


def test_all_parts_of_a_node() -> None:
    node = concat([Bytes(b"a"), repeat(alternate([Ref("x"), Ref("y")]), 0, 3)])
    assert {part.name for part in parts_of(node) if isinstance(part, Ref)} == {"x", "y"}


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))))
def test_components_are_the_sets_of_names_that_reach_each_other(edges: dict[str, set[str]]) -> None:
    edges = {name: edges.get(name, set()) for name in "abcdef"}
    reach = {name: {name} for name in edges}
    for _ in edges:
        for name in edges:
            reach[name] |= {far for near in edges[name] for far in reach[near]}
    groups = components(edges)
    assert sorted(name for group in groups for name in group) == sorted(edges)
    for group in groups:
        assert {name for name in edges if name in reach[group[0]] and group[0] in reach[name]} == set(group)
    order = {name: at for at, group in enumerate(groups) for name in group}
    assert all(order[target] <= order[name] for name, targets in edges.items() for target in targets)
