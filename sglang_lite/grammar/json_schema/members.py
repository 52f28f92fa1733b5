"""Sets of objects: members by name and by class of names, counts; knows no text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sglang_lite.grammar.hashing import Hashed, hashed_once
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, difference, intersection, literals, matches, union
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Term, all_of, complement
from sglang_lite.grammar.syntax import NEVER, Node


@hashed_once
@dataclass(frozen=True, slots=True)
class NameClass(Hashed):
    """The names in every language of `within` (no language: all names), in none of `outside`, and not listed in `barred`."""

    within: frozenset[Node] = frozenset()
    outside: frozenset[Node] = frozenset()
    barred: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return (
            name not in self.barred
            and all(matches(node, name) for node in self.within)
            and not any(matches(node, name) for node in self.outside)
        )

    def language(self) -> Node:
        """The names as a language of characters."""
        return self.minus(frozenset())

    def minus(self, names: frozenset[str]) -> Node:
        """The names but for some, as a language of characters."""
        found = intersection(sorted(self.within, key=hash)) if self.within else ANY_TEXT
        barred = union([*sorted(self.outside, key=hash), literals(self.barred | names)])
        return found if barred == NEVER else difference(found, barred)

    def meet(self, other: NameClass) -> NameClass:
        """The names in both."""
        return NameClass(self.within | other.within, self.outside | other.outside, self.barred | other.barred)

    def apart(self, other: NameClass) -> NameClass:
        """The names of this class that are not in `other`."""
        if not other.within:
            others = union([*sorted(other.outside, key=hash), literals(other.barred)])
            return replace(self, within=self.within | {others})
        return replace(self, outside=self.outside | {other.language()})


ALL_NAMES = NameClass()


@hashed_once
@dataclass(frozen=True, slots=True)
class ObjectSet(Hashed):
    """The objects that satisfy every field; a default field demands nothing.

    Attributes:
        names: declared names in order, each with what its value is in (FALSE: the name must not occur).
        required: names that must occur, declared or not, in order.
        rules: for each class of names, what the values of all members with such a name are in.
        some: for each class of names, that one member at least has such a name and a value in the term.
        low, high: bounds of the number of members; None is no upper bound.
        seen: names, and languages of names, that keywords have looked at, for `unevaluatedProperties`.
    """

    names: tuple[tuple[str, Term], ...] = ()
    required: tuple[str, ...] = ()
    rules: frozenset[tuple[NameClass, Term]] = frozenset()
    some: frozenset[tuple[NameClass, Term]] = frozenset()
    low: int = 0
    high: int | None = None
    seen: frozenset[str | Node] = frozenset()

    @property
    def has_seen(self) -> bool:
        """Whether a keyword has looked at some members."""
        return bool(self.seen)

    @property
    def known(self) -> tuple[str, ...]:
        """All names that are spoken of one by one: the declared ones, then the required ones that are not declared."""
        return tuple(dict.fromkeys((*(name for name, _ in self.names), *self.required)))

    def value(self, name: str) -> Term:
        """What the value of the name `name` is in, the rules of its classes included."""
        own = [term for declared, term in self.names if declared == name]
        return all_of([*own, *(term for names, term in self.rules if name in names)])


ALL_OBJECTS = ObjectSet()


def meet_objects(left: ObjectSet, right: ObjectSet) -> ObjectSet | None:
    """The objects in both; None if there are none to be seen at once. Names keep the order of `left`, then of `right`."""
    names = dict(left.names)
    for name, term in right.names:
        names[name] = all_of((names.get(name, TRUE), term))
    highs = [high for high in (left.high, right.high) if high is not None]
    return settled(
        ObjectSet(
            tuple(names.items()),
            tuple(dict.fromkeys((*left.required, *right.required))),
            left.rules | right.rules,
            left.some | right.some,
            max(left.low, right.low),
            min(highs, default=None),
            left.seen | right.seen,
        )
    )


def settled(one: ObjectSet) -> ObjectSet | None:
    """`one`, unless it is seen at once to be empty."""
    least = max(one.low, len(one.required))
    if one.high is not None and least > one.high:
        return None
    if any(one.value(name) == FALSE for name in one.required):
        return None
    return one


def complement_objects(one: ObjectSet) -> list[ObjectSet]:
    """The objects that are not in `one`, as a union."""
    declared = dict(one.names)
    # Without the name, or with it and a wrong value: one optional member says both.
    found = [ObjectSet(names=((name, complement(declared.get(name, TRUE))),)) for name in one.required]
    for name, term in one.names:
        if term != TRUE and name not in one.required:
            found.append(ObjectSet(names=((name, complement(term)),), required=(name,)))
    found.extend(ObjectSet(some=frozenset([(names, complement(term))])) for names, term in one.rules if term != TRUE)
    found.extend(ObjectSet(rules=frozenset([(names, complement(term))])) for names, term in one.some)
    if one.low > 0:
        found.append(ObjectSet(high=one.low - 1))
    if one.high is not None:
        found.append(ObjectSet(low=one.high + 1))
    return [part for part in found if settled(part) is not None]


def split_some(one: ObjectSet) -> list[ObjectSet]:
    """`one` as a union in which every demand of `some` concerns undeclared names only."""
    if not one.some:
        return [one]
    demand = next(iter(sorted(one.some, key=hash)))
    names, term = demand
    rest = replace(one, some=one.some - {demand})
    declared = one.known
    found: list[ObjectSet] = []
    for name in (name for name in declared if name in names):
        met = meet_objects(rest, ObjectSet(names=((name, term),), required=(name,)))
        found.extend(split_some(met) if met is not None else [])
    beyond = replace(names, barred=names.barred.union(declared))
    found.extend(replace(part, some=part.some | {(beyond, term)}) for part in split_some(rest))
    return found
