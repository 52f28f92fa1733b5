"""Sets of arrays: items by place, counts, contained items, uniqueness; knows no text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.hashing import Hashed, hashed_once
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Term, all_of, complement


@hashed_once
@dataclass(frozen=True, slots=True)
class Contained(Hashed):
    """At least `low` and at most `high` (None: any number) of the items from index `start` on are in `term`."""

    start: int
    term: Term
    low: int = 1
    high: int | None = None


@hashed_once
@dataclass(frozen=True, slots=True)
class ArraySet(Hashed):
    """The arrays that satisfy every field; a default field demands nothing.

    Attributes:
        prefix: what the first items are in, one by one; items that are not there demand nothing.
        rest: what all later items are in.
        low, high: bounds of the number of items; None is no upper bound.
        contained: demands on how many items are in a set.
        unique: where it is demanded that no two items are equal; empty where it is not.
        seen: items that keywords have looked at, for `unevaluatedItems`: so many from the begin, None for all.
        seen_terms: items in any of these are looked at as well.
    """

    prefix: tuple[Term, ...] = ()
    rest: Term = TRUE
    low: int = 0
    high: int | None = None
    contained: frozenset[Contained] = frozenset()
    unique: str = ""
    seen: int | None = 0
    seen_terms: frozenset[Term] = frozenset()

    @property
    def has_seen(self) -> bool:
        """Whether a keyword has looked at some items."""
        return self.seen != 0 or bool(self.seen_terms)

    def item(self, index: int) -> Term:
        """What the item at `index` is in."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


ALL_ARRAYS = ArraySet()


def meet_arrays(left: ArraySet, right: ArraySet) -> ArraySet | None:
    """The arrays in both; None if there are none to be seen at once."""
    size = max(len(left.prefix), len(right.prefix))
    highs = [high for high in (left.high, right.high) if high is not None]
    seen = [count for count in (left.seen, right.seen) if count is not None]
    return trimmed(
        ArraySet(
            tuple(all_of((left.item(i), right.item(i))) for i in range(size)),
            all_of((left.rest, right.rest)),
            max(left.low, right.low),
            min(highs, default=None),
            left.contained | right.contained,
            left.unique or right.unique,
            max(seen) if len(seen) == 2 else None,
            left.seen_terms | right.seen_terms,
        )
    )


def trimmed(one: ArraySet) -> ArraySet | None:
    """`one` with its upper bound lowered to where no item can stand; None if then no array is left."""
    high = one.high
    for index, term in enumerate((*one.prefix, one.rest)):
        if term == FALSE:
            high = index if high is None else min(high, index)
            break
    if high is not None and one.low > high:
        return None
    prefix = one.prefix if high is None else one.prefix[:high]
    return replace(one, high=high, prefix=prefix)


def complement_arrays(one: ArraySet) -> list[ArraySet]:
    """The arrays that are not in `one`, as a union.

    Raises:
        UnsupportedGrammarError: `one` asks for unique items, whose contrary no finite number of states can see.
    """
    found: list[ArraySet] = []
    if one.low > 0:
        found.append(ArraySet(high=one.low - 1))
    if one.high is not None:
        found.append(ArraySet(low=one.high + 1))
    for index, term in enumerate(one.prefix):
        if term != TRUE:
            found.append(ArraySet(prefix=(*(TRUE,) * index, complement(term)), low=index + 1))
    if one.rest != TRUE:
        found.append(ArraySet(contained=frozenset([Contained(len(one.prefix), complement(one.rest))])))
    for demand in one.contained:
        if demand.low > 0:
            found.append(ArraySet(contained=frozenset([replace(demand, low=0, high=demand.low - 1)])))
        if demand.high is not None:
            found.append(ArraySet(contained=frozenset([replace(demand, low=demand.high + 1, high=None)])))
    if one.unique:
        raise UnsupportedGrammarError("the negation of uniqueItems cannot be enforced")
    return [part for part in map(trimmed, found) if part is not None]
