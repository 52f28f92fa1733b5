"""What the reader of keywords asks of the whole, and forms on which `oneOf` is still open; knows no keyword."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sglang_lite.grammar.json_schema.documents import Document
from sglang_lite.grammar.json_schema.emptiness import Emptiness
from sglang_lite.grammar.json_schema.forms import Form, intersect
from sglang_lite.grammar.json_schema.options import Effect, SchemaOptions
from sglang_lite.grammar.json_schema.terms import Located, Term

MANY = 16  # alternatives from which on it pays to look for those without a value


@dataclass(frozen=True, slots=True)
class Choice:
    """The `oneOf` of the schema at `where`, not applied yet."""

    where: Located
    track: bool


@dataclass(frozen=True, slots=True)
class Loose:
    """A form, and the `oneOf` keywords that still narrow it."""

    form: Form
    choices: tuple[Choice, ...] = ()

    def meet(self, other: Loose) -> Loose:
        """The values in both."""
        return Loose(intersect(self.form, other.form), tuple(dict.fromkeys((*self.choices, *other.choices))))

    def within(self, form: Form) -> Loose:
        """The values that are in `form` too."""
        return Loose(intersect(self.form, form), self.choices)


class Context(Protocol):
    """Forms of terms, each computed once, and the notes."""

    document: Document
    options: SchemaOptions
    emptiness: Emptiness

    def note(self, pointer: str, keyword: str, effect: Effect, detail: str) -> None:
        """Remember that a keyword is not followed to the letter."""
        ...

    def form(self, term: Term, track: bool = False) -> Form:
        """The values of `term`; with `track`, its parts say what they have seen for an `unevaluated...` keyword above."""
        ...

    def loose(self, term: Term, track: bool = False) -> Loose:
        """As `form`, with `oneOf` left open."""
        ...

    def resolved(self, loose: Loose) -> Form:
        """The form with every open `oneOf` applied."""
        ...

    def negated(self, form: Form) -> Form:
        """The values that are not in `form`."""
        ...
