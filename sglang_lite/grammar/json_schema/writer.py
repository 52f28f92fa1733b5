"""What the writers of arrays and objects ask of the writer of values; knows neither."""

from __future__ import annotations

from typing import Protocol

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.forms import Form
from sglang_lite.grammar.json_schema.layout import Layout
from sglang_lite.grammar.json_schema.options import Effect
from sglang_lite.grammar.json_schema.terms import Term
from sglang_lite.grammar.syntax import Node, Ref


class ValueWriter(Protocol):
    """Writes terms as nodes and keeps the rules; `rules` may be overwritten by those who added them."""

    layout: Layout
    rules: dict[str, Node]

    def value(self, term: Term) -> Node:
        """The JSON texts of `term`."""
        ...

    def add_rule(self, stem: str, node: Node) -> Ref:
        """A new rule with a name that begins with `stem`."""
        ...

    def form(self, term: Term) -> Form:
        """The form of `term`, without alternatives that have no value."""
        ...

    def is_void(self, term: Term) -> bool:
        """Whether `term` is proven to have no value."""
        ...

    def note(self, pointer: str, keyword: str, effect: Effect, detail: str) -> None:
        """Remember that a keyword is not followed to the letter."""
        ...

    def unchecked(self, pointer: str, keyword: str, error: UnsupportedGrammarError) -> None:
        """Leave a keyword out with a note, or, in strict mode, raise `error`."""
        ...
