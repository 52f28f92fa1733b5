"""The keywords of one schema object, in the order in which they are applied; asks a context for everything beyond the object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import cast

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema import containers
from sglang_lite.grammar.json_schema.context import MANY, Choice, Context, Loose
from sglang_lite.grammar.json_schema.documents import step
from sglang_lite.grammar.json_schema.formats import format_language
from sglang_lite.grammar.json_schema.forms import EVERYTHING, Form, intersect, unite
from sglang_lite.grammar.json_schema.scalars import (
    NUMBER_KEYWORDS,
    TEXT_KEYWORDS,
    format_form,
    number_form,
    text_form,
    type_form,
    values_form,
)
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Located, Term

_MAX_SEEN_BRANCHES = 6  # an anyOf under an `unevaluated...` keyword is expanded to all sets of its branches
_EARLY = ("enum", "const", "format", "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf")
_COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties")
_LATE = ("contains", "uniqueItems", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies")
_LAST = ("not", "if", *_COUNTS, "unevaluatedItems", "unevaluatedProperties")
Step = tuple[str, Callable[[Loose], Loose]]


class SchemaReader:
    """The steps that bring the keywords of one schema object to a form, in order."""

    def __init__(self, owner: Context, where: Located, schema: Mapping[str, object], track: bool) -> None:
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
        for keyword in ("type", "required"):
            if keyword in self.schema:
                yield keyword, self._met(keyword)
        done: set[str] = set()
        for keyword in self.schema:
            for group in (containers.ITEM_KEYWORDS, containers.PROPERTY_KEYWORDS):
                if keyword in group and group[0] not in done:
                    done.add(group[0])
                    yield keyword, self._met(keyword)
            if keyword in _EARLY or keyword in NUMBER_KEYWORDS or keyword in TEXT_KEYWORDS:
                yield keyword, self._met(keyword)
        for keyword in (*_LATE, *_LAST):
            if keyword in self.schema:
                yield keyword, self._met(keyword)

    def _met(self, keyword: str) -> Callable[[Loose], Loose]:
        owner = self.owner
        match keyword:
            case "unevaluatedItems":
                term = self.child(keyword)
                return lambda found: Loose(containers.unevaluated_items_form(owner.resolved(found), term))
            case "unevaluatedProperties":
                term = self.child(keyword)
                return lambda found: Loose(containers.unevaluated_properties_form(owner.resolved(found), term))
            case "uniqueItems":
                return self._unique
            case "oneOf":
                return lambda found: found.meet(Loose(EVERYTHING, (Choice(self.where, self.track),)))
            case "$ref" | "$dynamicRef" | "$recursiveRef":
                return lambda found: found.meet(owner.loose(self._referenced(keyword), self.track))
            case "allOf":
                return self._all
            case _:
                return lambda found: found.within(self._keyword(keyword))

    def _unique(self, found: Loose) -> Loose:
        if self.schema["uniqueItems"] is False:
            return found
        at = step(self.where.pointer, "uniqueItems")
        form = found.form
        return replace(
            found, form=replace(form, arrays=tuple(replace(part, unique=part.unique or at) for part in form.arrays))
        )

    def _all(self, found: Loose) -> Loose:
        for at in range(len(cast("list[object]", self.schema["allOf"]))):
            found = found.meet(self.owner.loose(self.child("allOf", at), self.track))
            if len(found.form.objects) > MANY:
                found = replace(found, form=self.owner.emptiness.without_void(found.form))
        return found

    def _keyword(self, keyword: str) -> Form:
        schema, value = self.schema, self.schema[keyword]
        if keyword in NUMBER_KEYWORDS:
            return number_form(keyword, schema)
        if keyword in TEXT_KEYWORDS:
            return text_form(keyword, value)
        if keyword in _COUNTS:
            return containers.count_form(keyword, int(cast("int", value)))
        if keyword in containers.ITEM_KEYWORDS:
            return containers.items_form(schema, self.child, track=self.track)
        if keyword in containers.PROPERTY_KEYWORDS:
            return containers.properties_form(schema, self.child, track=self.track)
        match keyword:
            case "type":
                return type_form(value, nullable=schema.get("nullable") is True)
            case "enum" | "const":
                return values_form(cast("list[object]", value) if keyword == "enum" else [value])
            case "required":
                return containers.required_form(cast("list[str]", value))
            case "contains":
                return containers.contains_form(schema, self.child, track=self.track)
            case _:
                return self._combined(keyword)

    def _combined(self, keyword: str) -> Form:
        match keyword:
            case "not":
                return self.owner.negated(self._form(self.child(keyword)))
            case "if":
                return self._conditional()
            case "format":
                return self._format(self.schema[keyword])
            case "propertyNames":
                return containers.property_names_form(self._form(self.child(keyword)))
            case "dependentRequired" | "dependentSchemas" | "dependencies":
                return self._dependent(keyword)
            case _:
                return self._any(self.branches(keyword))

    def _form(self, term: Term, *, track: bool = False) -> Form:
        return self.owner.form(term, track)

    def branches(self, keyword: str) -> list[Form]:
        """The forms of the schemas that a keyword lists."""
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

    def _conditional(self) -> Form:
        schema = self.schema
        if "then" not in schema and "else" not in schema and not self.track:
            return EVERYTHING
        condition = self._form(self.child("if"), track=self.track)
        then = self._form(self.child("then"), track=self.track) if "then" in schema else EVERYTHING
        if "then" not in schema and not self.track:
            return unite([condition, self._form(self.child("else"))])
        otherwise = self._form(self.child("else"), track=self.track) if "else" in schema else EVERYTHING
        contrary = self.owner.negated(self._form(self.child("if")))
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
        return format_form(found)

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
        raw = document.at(target)
        if isinstance(raw, bool):
            return TRUE if raw else FALSE
        return self._term(target)


def one_of(owner: Context, choice: Choice, base: Form) -> Form:
    """The values of `base` that are in exactly one branch of a `oneOf`."""
    where = choice.where
    schema = cast("Mapping[str, object]", owner.document.at(where.pointer))
    branches = SchemaReader(owner, where, schema, choice.track).branches("oneOf")
    without_void = owner.emptiness.without_void
    found: list[Form] = []
    for at, branch in enumerate(branches):
        alone = without_void(intersect(base, branch))
        for other_at, other in enumerate(branches):
            if other_at != at and not without_void(intersect(alone, other)).is_bare:
                try:
                    alone = without_void(intersect(alone, owner.negated(other)))
                except UnsupportedGrammarError as error:
                    raise UnsupportedGrammarError(
                        f"oneOf at #{step(where.pointer, 'oneOf')}: the branches {at} and {other_at} may both hold, and "
                        f"{error}; use anyOf, or give each branch a required member with its own const"
                    ) from None
        found.append(alone)
    return unite(found)
