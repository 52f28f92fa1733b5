"""Rules that no text can end are cut away."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.productive import without_dead_rules
from sglang_lite.grammar.syntax import NEVER, Bytes, Node, Ref, alternate, concat

A = Bytes(b"a")


def test_what_cannot_end_is_cut_where_it_is_used() -> None:
    rules: dict[str, Node] = {
        "loop": concat([A, Ref("loop")]),
        "value": alternate([A, concat([Bytes(b"["), Ref("loop")])]),
        "unused": A,
    }
    found = without_dead_rules(Ref("value"), rules)
    assert found.rules == {"value": A}


def test_recursion_that_can_end_stays() -> None:
    rules: dict[str, Node] = {"list": alternate([A, concat([A, Ref("list")])])}
    assert without_dead_rules(Ref("list"), rules).rules == rules


def test_a_start_without_a_text_is_never() -> None:
    assert without_dead_rules(Ref("x"), {"x": concat([A, Ref("x")])}).start == NEVER


def test_rules_that_need_each_other_live_if_one_can_end() -> None:
    """`a` waits for `b`, which waits for `c`, which recurses to `a` but can end; `d` and `e` only go round."""
    rules: dict[str, Node] = {
        "a": concat([A, Ref("b")]),
        "b": concat([Ref("c"), A]),
        "c": alternate([concat([A, Ref("a")]), A]),
        "d": concat([A, Ref("e")]),
        "e": alternate([Ref("d"), concat([NEVER, A])]),
    }
    found = without_dead_rules(alternate([Ref("d"), Ref("a")]), rules)
    assert set(found.rules) == {"a", "b", "c"}
    assert found.start == Ref("a")


def test_a_rule_is_looked_at_again_when_what_it_needs_turns_out_to_live() -> None:
    lists: dict[str, Node] = {
        "x": alternate([concat([A, Ref("x")]), concat([A, Ref("y")])]),
        "y": alternate([concat([A, Ref("y")]), A]),
    }
    for start in (alternate([Ref("x"), Ref("y")]), alternate([Ref("y"), Ref("x")])):
        assert set(without_dead_rules(start, lists).rules) == {"x", "y"}
