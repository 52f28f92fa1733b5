"""From terms to forms: the keywords of a schema brought together type by type; knows no text."""

from __future__ import annotations

import json
from dataclasses import replace

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema.checking import check_schema
from sglang_lite.grammar.json_schema.context import MANY, Loose
from sglang_lite.grammar.json_schema.documents import Document, step
from sglang_lite.grammar.json_schema.emptiness import Emptiness
from sglang_lite.grammar.json_schema.forms import EVERYTHING, NOTHING, Form, negate, unite
from sglang_lite.grammar.json_schema.keywords import SchemaReader, one_of
from sglang_lite.grammar.json_schema.options import Effect, SchemaNote, SchemaOptions
from sglang_lite.grammar.json_schema.scalars import values_form
from sglang_lite.grammar.json_schema.terms import AllOf, AnyOf, Anything, Constant, Located, NotIn, Term

MAX_TERMS = 20_000


class Normaliser:
    """Brings the terms of one document to forms, each once, and collects notes.

    A keyword that cannot be enforced raises UnsupportedGrammarError naming it and its place; where `options.strict` is off,
    it is left out instead, with a note.
    """

    def __init__(self, document: Document, options: SchemaOptions) -> None:
        self.document = document
        self.options = options
        self.notes: dict[SchemaNote, None] = {}
        self.emptiness = Emptiness(self.form)
        self._forms: dict[tuple[Term, bool], Form] = {}
        self._loose: dict[tuple[Term, bool], Loose | None] = {}

    def note(self, pointer: str, keyword: str, effect: Effect, detail: str) -> None:
        """Remember that a keyword is not followed to the letter."""
        self.notes[SchemaNote(pointer, keyword, effect, detail)] = None

    def form(self, term: Term, track: bool = False) -> Form:
        """The values of `term`; with `track`, its parts say what they have seen for an `unevaluated...` keyword above.

        Raises:
            UnsupportedGrammarError, GrammarTooLargeError, InvalidGrammarError
        """
        key = (term, track)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = self.resolved(self.loose(term, track))
        return found

    def loose(self, term: Term, track: bool = False) -> Loose:
        """As `form`, with `oneOf` left open: which branches exclude each other may depend on what surrounds them."""
        key = (term, track)
        if key in self._loose:
            known = self._loose[key]
            if known is None:
                raise InvalidGrammarError(f"reading a JSON Schema: {_place(term)} is defined by nothing but itself")
            return known
        if len(self._loose) >= MAX_TERMS:
            raise GrammarTooLargeError(f"reading a JSON Schema: it needs more than {MAX_TERMS} combinations of schemas")
        self._loose[key] = None
        try:
            found = self._computed(term, track)
        except BaseException:
            del self._loose[key]
            raise
        self._loose[key] = found
        return found

    def resolved(self, loose: Loose) -> Form:
        """The form with every open `oneOf` applied."""
        form = loose.form
        for choice in loose.choices:
            try:
                form = one_of(self, choice, form)
            except UnsupportedGrammarError as error:
                if self.options.strict:
                    raise
                self.note(step(choice.where.pointer, "oneOf"), "oneOf", "unchecked", str(error))
                form = replace(form, inexact=True)
        return form

    def negated(self, form: Form) -> Form:
        """The values that are not in `form`."""
        if form.inexact:
            raise UnsupportedGrammarError("the negation of a keyword that is left out cannot be enforced")
        return negate(form)

    def _computed(self, term: Term, track: bool) -> Loose:
        match term:
            case Anything(positive):
                return Loose(EVERYTHING if positive else NOTHING)
            case Constant(text):
                return Loose(values_form([json.loads(text)]))
            case AllOf(terms):
                found = Loose(EVERYTHING)
                for part in sorted(terms, key=_order):
                    found = found.meet(self.loose(part, track))
                    if len(found.form.objects) > MANY:
                        found = replace(found, form=self.emptiness.without_void(found.form))
                return found
            case AnyOf(terms):
                return Loose(unite(self.form(part, track) for part in sorted(terms, key=_order)))
            case NotIn(inner):
                return Loose(self.negated(self.form(inner)))
            case Located():
                return self._located(term, track)

    def _located(self, where: Located, track: bool) -> Loose:
        raw = self.document.at(where.pointer)
        if isinstance(raw, bool):
            return Loose(EVERYTHING if raw else NOTHING)
        if where.pointer not in self.document.visited:
            check_schema(where.pointer, raw)
        track = track or "unevaluatedItems" in raw or "unevaluatedProperties" in raw
        reader = SchemaReader(self, where, raw, track)
        found = Loose(EVERYTHING)
        for keyword, read in reader.steps():
            try:
                found = read(found)
            except UnsupportedGrammarError as error:
                if "at #" not in str(error):
                    error = UnsupportedGrammarError(f"{keyword} at #{step(where.pointer, keyword)}: {error}")
                if self.options.strict:
                    raise error from None
                self.note(step(where.pointer, keyword), keyword, "unchecked", str(error))
                found = replace(found, form=replace(found.form, inexact=True))
            if found.form.is_bare:
                return Loose(found.form)
        return found


def _order(term: Term) -> str:
    return repr(term)


def _place(term: Term) -> str:
    return f"#{term.pointer}" if isinstance(term, Located) else "a combination of schemas"
