"""Sets of strings: lengths, languages, values, closed under intersection and complement; knows no JSON spelling."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.hashing import Hashed, hashed_once
from sglang_lite.grammar.json_schema.languages import (
    difference,
    intersection,
    is_empty,
    literals,
    matches,
    union,
)
from sglang_lite.grammar.json_schema.lengths import bounded
from sglang_lite.grammar.syntax import NEVER, Node


@hashed_once
@dataclass(frozen=True, slots=True)
class TextSet(Hashed):
    """The strings that satisfy every field; a default field demands nothing.

    Attributes:
        low, high: bounds of the length in code points; None is no upper bound.
        within, outside: languages of characters that each member is in, or is not in.
        values: the only members, if listed; then all other fields but `offered` are defaults.
        excluded: strings that are no members.
        offered: languages that stand for a set they are a part of. Only their texts are written, but they prove nothing about what
            is no member: a set that seems empty because of them need not be.
    """

    low: int = 0
    high: int | None = None
    within: frozenset[Node] = frozenset()
    outside: frozenset[Node] = frozenset()
    values: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    offered: frozenset[Node] = frozenset()

    def __contains__(self, text: str) -> bool:
        if self.values is not None:
            return text in self.values
        return (
            self.low <= len(text)
            and (self.high is None or len(text) <= self.high)
            and text not in self.excluded
            and all(matches(node, text) for node in self.within)
            and not any(matches(node, text) for node in self.outside)
        )

    @property
    def is_empty(self) -> bool:
        """Whether no member is left, whatever is offered; False where that is not decided."""
        if self.values is not None:
            return not self.values
        if self.high is not None and self.low > self.high:
            return True
        if not self.within and not self.outside:
            return False
        return is_empty(replace(self, offered=frozenset()).language())

    def listed(self) -> frozenset[str] | None:
        """The members that are written, if they are listed."""
        if self.values is None:
            return None
        return frozenset(text for text in self.values if all(matches(node, text) for node in self.offered))

    def language(self) -> Node:
        """The members that are offered, as a regular language of characters."""
        return self._language(exact=True)

    def written(self) -> Node:
        """As `language`, but where `is_thinned` holds it may be a part of it whose automaton stays small."""
        return self._language(exact=False)

    @property
    def is_thinned(self) -> bool:
        """Whether `written` leaves members out."""
        return self.high is not None and self.written() != self.language()

    def _language(self, *, exact: bool) -> Node:
        listed = self.listed()
        if listed is not None:
            return literals(listed)
        parts = sorted(self.within | self.offered, key=hash)
        found = bounded(intersection(parts), self.low, self.high, exact=exact)
        barred = union([*sorted(self.outside, key=hash), literals(self.excluded)])
        return found if barred == NEVER else difference(found, barred)


ALL_TEXTS = TextSet()


def text_values(values: frozenset[str]) -> TextSet:
    """Exactly these strings."""
    return TextSet(values=values)


def meet_texts(left: TextSet, right: TextSet) -> TextSet | None:
    """The strings in both; None if there are none to be seen at once."""
    if left.values is not None or right.values is not None:
        listed, other = (left, right) if left.values is not None else (right, left)
        kept = frozenset(value for value in listed.values or () if value in other)
        return TextSet(values=kept, offered=left.offered | right.offered) if kept else None
    highs = [high for high in (left.high, right.high) if high is not None]
    met = TextSet(
        max(left.low, right.low),
        min(highs, default=None),
        left.within | right.within,
        left.outside | right.outside,
        None,
        left.excluded | right.excluded,
        left.offered | right.offered,
    )
    if (met.high is not None and met.low > met.high) or met.within & met.outside:
        return None
    return met


def complement_texts(one: TextSet) -> list[TextSet]:
    """The strings that are not in `one`, as a union.

    Raises:
        UnsupportedGrammarError: `one` is known in part only.
    """
    if one.offered:
        raise UnsupportedGrammarError("the negation of a format that is offered in part cannot be enforced")
    if one.values is not None:
        return [TextSet(excluded=one.values)]
    found: list[TextSet] = []
    if one.low > 0:
        found.append(TextSet(high=one.low - 1))
    if one.high is not None:
        found.append(TextSet(low=one.high + 1))
    found.extend(TextSet(outside=frozenset([node])) for node in one.within)
    found.extend(TextSet(within=frozenset([node])) for node in one.outside)
    if one.excluded:
        found.append(text_values(one.excluded))
    return found
