"""Symbolic sets of JSON values: schemas by their place, constants, and their combinations; knows no keyword."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sglang_lite.grammar.hashing import Hashed, hashed_once


@dataclass(frozen=True, slots=True)
class Anything:
    """All values (`positive`) or none."""

    positive: bool


@hashed_once
@dataclass(frozen=True, slots=True)
class Located(Hashed):
    """The schema at a JSON Pointer of the root document.

    `scope` holds, for each dynamic anchor met on the way, the pointer that a `$dynamicRef` to it leads to.
    """

    pointer: str
    scope: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """Exactly the value whose canonical JSON text is `text`; keys keep their order."""

    text: str


@hashed_once
@dataclass(frozen=True, slots=True)
class AllOf(Hashed):
    """Values in every one of `terms`."""

    terms: frozenset[Term]


@hashed_once
@dataclass(frozen=True, slots=True)
class AnyOf(Hashed):
    """Values in one of `terms` at least."""

    terms: frozenset[Term]


@hashed_once
@dataclass(frozen=True, slots=True)
class NotIn(Hashed):
    """Values that are not in `term`."""

    term: Term


Term = Anything | Located | Constant | AllOf | AnyOf | NotIn
TRUE = Anything(True)
FALSE = Anything(False)


def all_of(terms: Iterable[Term]) -> Term:
    """The intersection, in its smallest form."""
    parts: set[Term] = set()
    for term in terms:
        parts.update(term.terms if isinstance(term, AllOf) else (term,))
    parts.discard(TRUE)
    if FALSE in parts or any(isinstance(part, NotIn) and part.term in parts for part in parts):
        return FALSE
    if not parts:
        return TRUE
    return next(iter(parts)) if len(parts) == 1 else AllOf(frozenset(parts))


def any_of(terms: Iterable[Term]) -> Term:
    """The union, in its smallest form."""
    parts: set[Term] = set()
    for term in terms:
        parts.update(term.terms if isinstance(term, AnyOf) else (term,))
    parts.discard(FALSE)
    if TRUE in parts or any(isinstance(part, NotIn) and part.term in parts for part in parts):
        return TRUE
    if not parts:
        return FALSE
    return next(iter(parts)) if len(parts) == 1 else AnyOf(frozenset(parts))


def complement(term: Term) -> Term:
    """The values that are not in `term`."""
    match term:
        case Anything(positive):
            return Anything(not positive)
        case NotIn(inner):
            return inner
        case _:
            return NotIn(term)


def constant(value: object) -> Term:
    """The set of one value."""
    return Constant(json.dumps(value, ensure_ascii=True))
