"""Sets of objects and classes of names."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.languages import is_empty, matches
from sglang_lite.grammar.json_schema.members import (
    ALL_NAMES,
    NameClass,
    ObjectSet,
    complement_objects,
    meet_objects,
    split_some,
)
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Located, all_of

A, B = Located("/a"), Located("/b")
X = NameClass(within=frozenset([pattern_language("^x")]))


def test_names_keep_the_order_in_which_they_are_met() -> None:
    met = meet_objects(ObjectSet((("p", A), ("q", TRUE))), ObjectSet((("r", A), ("p", B)), required=("s", "p")))
    assert met is not None
    assert met.known == ("p", "q", "r", "s")
    assert met.value("p") == all_of([A, B])


def test_rules_hold_for_declared_names_too() -> None:
    one = ObjectSet((("xa", A), ("y", A)), rules=frozenset([(X, B)]))
    assert one.value("xa") == all_of([A, B])
    assert one.value("y") == A
    assert meet_objects(ObjectSet(required=("x",)), ObjectSet(rules=frozenset([(X, FALSE)]))) is None
    assert meet_objects(ObjectSet(required=("a", "b")), ObjectSet(high=1)) is None


def test_classes_meet_and_part() -> None:
    others = NameClass(outside=X.within, barred=frozenset(["n"]))
    for name in ("x", "xy", "n", "m", ""):
        assert matches(X.meet(others).language(), name) == (name in X and name in others)
        assert matches(ALL_NAMES.apart(others).language(), name) == (name not in others)
        assert matches(others.apart(X).language(), name) == (name in others and name not in X)
    assert is_empty(X.meet(others).language())


def test_a_required_member_that_may_be_wrong_is_one_alternative() -> None:
    """Absent, or there with a wrong value: an optional member says both, which keeps unions small."""
    found = complement_objects(ObjectSet((("a", A),), required=("a",)))
    assert len(found) == 1
    assert found[0].required == ()


def test_a_demand_is_met_by_a_declared_member_or_by_another() -> None:
    parts = split_some(ObjectSet((("xa", TRUE), ("b", TRUE)), some=frozenset([(X, A)])))
    assert [part.required for part in parts] == [("xa",), ()]
    ((names, _),) = parts[1].some
    assert "xa" not in names
    assert "xb" in names
