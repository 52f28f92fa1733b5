"""What a caller may choose about a schema's grammar, and what he gets; knows nothing of how schemas are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_lite.grammar.errors import InvalidGrammarError
from sglang_lite.grammar.syntax import Grammar

Whitespace = Literal["compact", "spaced", "any"]
Formats = Literal["assert", "annotation"]
Effect = Literal["narrower", "unchecked"]


@dataclass(frozen=True)
class SchemaOptions:
    """How a schema becomes a grammar.

    Attributes:
        strict: refuse what can be neither enforced nor safely narrowed; otherwise leave it out with a note `unchecked`.
        whitespace: `compact` is `,` and `:`; `spaced` is `, ` and `: `; `any` is up to `max_whitespace` characters of
            JSON white space around every token and at both ends.
        max_whitespace: the longest run of white space under `any`.
        formats: `assert` enforces the formats of `formats.py`; `annotation` ignores `format`, as the specification's default does.
        max_integer_digits: digits before the decimal point of a number.
        max_fraction_digits: digits behind it.
    """

    strict: bool = True
    whitespace: Whitespace = "compact"
    max_whitespace: int = 20
    formats: Formats = "assert"
    max_integer_digits: int = 32
    max_fraction_digits: int = 32

    def __post_init__(self) -> None:
        if self.whitespace not in ("compact", "spaced", "any"):
            raise InvalidGrammarError(
                f"schema options: whitespace is {self.whitespace!r}, expected 'compact', 'spaced' or 'any'"
            )
        if self.formats not in ("assert", "annotation"):
            raise InvalidGrammarError(f"schema options: formats is {self.formats!r}, expected 'assert' or 'annotation'")
        for name in ("max_whitespace", "max_integer_digits", "max_fraction_digits"):
            if getattr(self, name) < 1:
                raise InvalidGrammarError(f"schema options: {name} is {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, slots=True)
class SchemaNote:
    """A keyword that is not enforced exactly.

    Attributes:
        pointer: JSON Pointer of the keyword in the schema.
        keyword: its name.
        effect: `narrower` if some valid values are not offered, `unchecked` if some invalid ones are.
        detail: what is left out, in words.
    """

    pointer: str
    keyword: str
    effect: Effect
    detail: str


@dataclass(frozen=True)
class SchemaGrammar:
    """The grammar of a schema's texts, with notes on every keyword that it does not follow to the letter."""

    grammar: Grammar
    notes: tuple[SchemaNote, ...]
