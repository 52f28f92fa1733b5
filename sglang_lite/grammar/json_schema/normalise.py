"""From terms to forms: the keywords of a schema brought together type by type; knows no text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import cast

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema import containers
from sglang_lite.grammar.json_schema.checking import check_schema
from sglang_lite.grammar.json_schema.documents import Document, step
from sglang_lite.grammar.json_schema.emptiness import Emptiness
from sglang_lite.grammar.json_schema.formats import format_language
from sglang_lite.grammar.json_schema.forms import EVERYTHING, NOTHING, Form, intersect, negate, unite
from sglang_lite.grammar.json_schema.options import Effect, SchemaNote, SchemaOptions
from sglang_lite.grammar.json_schema.scalars import NUMBER_KEYWORDS, number_form, text_form, type_form, values_form
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, AllOf, AnyOf, Anything, Constant, Located, NotIn, Term

MAX_TERMS = 20_000
_MAX_SEEN_BRANCHES = 6  # an anyOf under an `unevaluated...` keyword is expanded to all sets of its branches
_EARLY = ("type", "enum", "const", "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf")
_COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties")
_LATE = (
    "contains",
    "uniqueItems",
    "propertyNames",
    "required",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
)
_LAST = ("not", "if", *_COUNTS, "unevaluatedItems", "unevaluatedProperties")


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
        self._forms: dict[tuple[Term, bool], Form | None] = {}

    def note(self, pointer: str, keyword: str, effect: Effect, detail: str) -> None:
        """Remember that a keyword is not followed to the letter."""
        self.notes[SchemaNote(pointer, keyword, effect, detail)] = None

    def form(self, term: Term, track: bool = False) -> Form:
        """The values of `term`; with `track`, its parts say what they have seen for an `unevaluated...` keyword above.

        Raises:
            UnsupportedGrammarError, GrammarTooLargeError, InvalidGrammarError
        """
        key = (term, track)
        if key in self._forms:
            known = self._forms[key]
            if known is None:
                raise InvalidGrammarError(f"reading a JSON Schema: {_place(term)} is defined by nothing but itself")
            return known
        if len(self._forms) >= MAX_TERMS:
            raise GrammarTooLargeError(f"reading a JSON Schema: it needs more than {MAX_TERMS} combinations of schemas")
        self._forms[key] = None
        try:
            found = self._computed(term, track)
        except BaseException:
            del self._forms[key]
            raise
        self._forms[key] = found
        return found

    def _computed(self, term: Term, track: bool) -> Form:
        match term:
            case Anything(positive):
                return EVERYTHING if positive else NOTHING
            case Constant(text):
                return values_form([json.loads(text)])
            case AllOf(terms):
                found = EVERYTHING
                for part in sorted(terms, key=_order):
                    found = intersect(found, self.form(part, track))
                return found
            case AnyOf(terms):
                return unite(self.form(part, track) for part in sorted(terms, key=_order))
            case NotIn(inner):
                return self._negated(self.form(inner))
            case Located():
                return self._located(term, track)

    def _negated(self, form: Form) -> Form:
        if form.inexact:
            raise UnsupportedGrammarError("the negation of a keyword that is left out cannot be enforced")
        return negate(form)

    def _located(self, where: Located, track: bool) -> Form:
        raw = self.document.at(where.pointer)
        if isinstance(raw, bool):
            return EVERYTHING if raw else NOTHING
        if where.pointer not in self.document.visited:
            check_schema(where.pointer, raw)
        track = track or "unevaluatedItems" in raw or "unevaluatedProperties" in raw
        reader = _SchemaReader(self, where, raw, track)
        found = EVERYTHING
        for keyword, read in reader.steps():
            try:
                found = read(found)
            except UnsupportedGrammarError as error:
                if "at #" not in str(error):
                    error = UnsupportedGrammarError(f"{keyword} at #{step(where.pointer, keyword)}: {error}")
                if self.options.strict:
                    raise error from None
                self.note(step(where.pointer, keyword), keyword, "unchecked", str(error))
                found = replace(found, inexact=True)
            if found.is_bare:
                return found
        return found


Step = tuple[str, Callable[[Form], Form]]


class _SchemaReader:
    """The steps that bring the keywords of one schema object to a form, in order."""

    def __init__(self, owner: Normaliser, where: Located, schema: Mapping[str, object], track: bool) -> None:
        self.owner = owner
        self.where = where
        self.schema = schema
        self.track = track

    def child(self, keyword: str, *tokens: object) -> Term:
        """The schema at a keyword, or deeper."""
        value = self.schema[keyword]
        pointer = step(self.where.pointer, keyword)
        for token in tokens:
            value = cast("Mapping[object, object]", value)[token]
            pointer = step(pointer, token)
        if isinstance(value, bool):
            return TRUE if value else FALSE
        return TRUE if value == {} else self._term(pointer)

    def _term(self, pointer: str) -> Term:
        scope = dict(self.where.scope)
        for name, target in self.owner.document.dynamic_anchors(pointer).items():
            scope.setdefault(name, target)
        return Located(pointer, tuple(sorted(scope.items())))

    def steps(self) -> Iterator[Step]:
        """Keywords in the order in which they are applied, each with what it does to the form so far.

        What declares members comes as it stands in the schema, so that their order is the schema's; what only tests comes later.
        """
        done: set[str] = set()
        for keyword in self.schema:
            for group in (containers.ITEM_KEYWORDS, containers.PROPERTY_KEYWORDS):
                if keyword in group and group[0] not in done:
                    done.add(group[0])
                    yield keyword, self._met(keyword)
            if (
                keyword in _EARLY
                or keyword in NUMBER_KEYWORDS
                or keyword in ("minLength", "maxLength", "pattern", "format")
            ):
                yield keyword, self._met(keyword)
        for keyword in (*_LATE, *_LAST):
            if keyword in self.schema:
                yield keyword, self._met(keyword)

    def _met(self, keyword: str) -> Callable[[Form], Form]:
        match keyword:
            case "unevaluatedItems":
                return lambda form: containers.unevaluated_items_form(form, self.child(keyword))
            case "unevaluatedProperties":
                return lambda form: containers.unevaluated_properties_form(form, self.child(keyword))
            case "uniqueItems":
                return self._unique
            case _:
                return lambda form: intersect(form, self._keyword(keyword))

    def _unique(self, form: Form) -> Form:
        if self.schema["uniqueItems"] is False:
            return form
        at = step(self.where.pointer, "uniqueItems")
        return replace(form, arrays=tuple(replace(part, unique=part.unique or at) for part in form.arrays))

    def _keyword(self, keyword: str) -> Form:
        schema, value = self.schema, self.schema[keyword]
        if keyword in NUMBER_KEYWORDS:
            return number_form(keyword, schema)
        if keyword in _COUNTS:
            return containers.count_form(keyword, int(cast("int", value)))
        if keyword in containers.ITEM_KEYWORDS:
            return containers.items_form(schema, self.child, track=self.track)
        if keyword in containers.PROPERTY_KEYWORDS:
            return containers.properties_form(schema, self.child, track=self.track)
        match keyword:
            case "type":
                return type_form(value, nullable=schema.get("nullable") is True)
            case "enum":
                return values_form(cast("list[object]", value))
            case "const":
                return values_form([value])
            case "minLength" | "maxLength" | "pattern":
                return text_form(keyword, value)
            case "format":
                return self._format(value)
            case "contains":
                return containers.contains_form(schema, self.child, track=self.track)
            case "propertyNames":
                return containers.property_names_form(self._form(self.child(keyword)))
            case "required":
                return containers.required_form(cast("list[str]", value))
            case "dependentRequired" | "dependentSchemas" | "dependencies":
                return self._dependent(keyword)
            case _:
                return self._combined(keyword)

    def _combined(self, keyword: str) -> Form:
        match keyword:
            case "$ref" | "$dynamicRef" | "$recursiveRef":
                return self._form(self._referenced(keyword), track=self.track)
            case "not":
                return self.owner._negated(self._form(self.child(keyword)))  # pyright: ignore[reportPrivateUsage]
            case "if":
                return self._conditional()
            case "allOf":
                found = EVERYTHING
                for branch in self._branches(keyword):
                    found = intersect(found, branch)
                return found
            case "anyOf":
                return self._any(self._branches(keyword))
            case _:
                return self._one(self._branches(keyword))

    def _form(self, term: Term, *, track: bool = False) -> Form:
        return self.owner.form(term, track)

    def _branches(self, keyword: str) -> list[Form]:
        count = len(cast("list[object]", self.schema[keyword]))
        return [self._form(self.child(keyword, i), track=self.track) for i in range(count)]

    def _any(self, branches: list[Form]) -> Form:
        if not self.track or len(branches) > _MAX_SEEN_BRANCHES:
            return unite(branches)
        # What has been seen is the union over all branches that hold, so each set of branches is an alternative.
        found: list[Form] = []
        for size in range(len(branches), 0, -1):
            for chosen in combinations(branches, size):
                met = EVERYTHING
                for form in chosen:
                    met = intersect(met, form)
                found.append(self.owner.emptiness.without_void(met))
        return unite(found)

    def _one(self, branches: list[Form]) -> Form:
        without_void = self.owner.emptiness.without_void
        found: list[Form] = []
        for at, branch in enumerate(branches):
            alone = branch
            for other_at, other in enumerate(branches):
                if other_at != at and not without_void(intersect(alone, other)).is_bare:
                    alone = without_void(intersect(alone, self._other(other, at, other_at)))
            found.append(alone)
        return unite(found)

    def _other(self, form: Form, at: int, other_at: int) -> Form:
        try:
            return self.owner._negated(form)  # pyright: ignore[reportPrivateUsage]
        except UnsupportedGrammarError as error:
            raise UnsupportedGrammarError(
                f"oneOf at #{step(self.where.pointer, 'oneOf')}: the branches {at} and {other_at} may both hold, and "
                f"{error}; use anyOf, or give each branch a required member with its own const"
            ) from None

    def _conditional(self) -> Form:
        schema = self.schema
        if "then" not in schema and "else" not in schema and not self.track:
            return EVERYTHING
        condition = self._form(self.child("if"), track=self.track)
        then = self._form(self.child("then"), track=self.track) if "then" in schema else EVERYTHING
        if "then" not in schema and not self.track:
            return unite([condition, self._form(self.child("else"))])
        otherwise = self._form(self.child("else"), track=self.track) if "else" in schema else EVERYTHING
        contrary = self.owner._negated(self._form(self.child("if")))  # pyright: ignore[reportPrivateUsage]
        without_void = self.owner.emptiness.without_void
        return unite([without_void(intersect(condition, then)), without_void(intersect(contrary, otherwise))])

    def _dependent(self, keyword: str) -> Form:
        found = EVERYTHING
        for name, demand in cast("Mapping[str, object]", self.schema[keyword]).items():
            if isinstance(demand, list):
                then = containers.required_form(cast("list[str]", demand))
            else:
                then = self._form(self.child(keyword, name), track=self.track)
            found = intersect(found, containers.dependent_form(name, then))
        return found

    def _format(self, value: object) -> Form:
        found = format_language(value) if isinstance(value, str) and self.owner.options.formats == "assert" else None
        if found is None:
            return EVERYTHING
        if found.narrowed is not None:
            self.owner.note(step(self.where.pointer, "format"), "format", "narrower", f"without {found.narrowed}")
        return text_form("format", value)

    def _referenced(self, keyword: str) -> Term:
        document, pointer = self.owner.document, self.where.pointer
        reference = cast("str", self.schema[keyword])
        target = document.resolve(reference, pointer, keyword)
        if keyword == "$recursiveRef" and "$recursiveAnchor" in self.schema:
            raise UnsupportedGrammarError("$recursiveAnchor is not supported; use $dynamicAnchor")
        if keyword == "$dynamicRef":
            name = reference.partition("#")[2]
            if document.is_dynamic(target, name):
                target = dict(self.where.scope).get(name, target)
        found = self.document_term(target)
        return found

    def document_term(self, pointer: str) -> Term:
        """The schema at `pointer`, seen from here."""
        raw = self.owner.document.at(pointer)
        if isinstance(raw, bool):
            return TRUE if raw else FALSE
        return self._term(pointer)


def _order(term: Term) -> str:
    return repr(term)


def _place(term: Term) -> str:
    return f"#{term.pointer}" if isinstance(term, Located) else "a combination of schemas"
