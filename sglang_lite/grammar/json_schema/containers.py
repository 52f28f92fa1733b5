"""What the keywords of one schema object say about arrays and objects by themselves; knows no combination of schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from sglang_lite.grammar.json_schema.forms import EVERYTHING, Form, intersect, unite
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, union
from sglang_lite.grammar.json_schema.members import ALL_NAMES, NameClass, ObjectSet
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.json_schema.sequences import ArraySet, Contained, trimmed
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Term, any_of
from sglang_lite.grammar.json_schema.texts import ALL_TEXTS

Child = Callable[..., Term]  # keyword and further tokens of a pointer -> the schema there
ITEM_KEYWORDS = ("prefixItems", "items", "additionalItems")
PROPERTY_KEYWORDS = ("properties", "patternProperties", "additionalProperties")


def items_form(schema: Mapping[str, object], child: Child, *, track: bool) -> Form:
    """The values that `prefixItems`, `items` and the older `additionalItems` let pass."""
    items = schema.get("items")
    if isinstance(items, list):  # before draft 2020-12
        first, rest_keyword = "items", "additionalItems"
    else:
        first, rest_keyword = "prefixItems", "items"
    prefix = tuple(child(first, i) for i in range(len(cast("list[object]", schema.get(first, [])))))
    has_rest = rest_keyword in schema
    seen = (None if has_rest else len(prefix)) if track else 0
    return with_arrays(ArraySet(prefix, child(rest_keyword) if has_rest else TRUE, seen=seen))


def contains_form(schema: Mapping[str, object], child: Child, *, track: bool) -> Form:
    """The values that `contains`, `minContains` and `maxContains` let pass."""
    term = child("contains")
    low = int(cast("int", schema.get("minContains", 1)))
    high = int(cast("int", schema["maxContains"])) if "maxContains" in schema else None
    demands = frozenset([Contained(0, term, low, high)]) if low or high is not None else frozenset[Contained]()
    return with_arrays(ArraySet(contained=demands, seen_terms=frozenset([term]) if track else frozenset()))


def unevaluated_items_form(form: Form, term: Term) -> Form:
    """`form` with `unevaluatedItems` applied to what its alternatives have not seen."""
    parts: list[ArraySet] = []
    for part in form.arrays:
        if part.seen is not None:
            allowed = any_of((term, *part.seen_terms))
            rest = with_arrays(ArraySet((TRUE,) * part.seen, allowed))
            parts.extend(intersect(with_arrays(part), rest).arrays)
        else:
            parts.append(part)
    return replace(form, arrays=tuple(replace(part, seen=None, seen_terms=frozenset()) for part in parts))


def properties_form(schema: Mapping[str, object], child: Child, *, track: bool) -> Form:
    """The values that `properties`, `patternProperties` and `additionalProperties` let pass."""
    names = tuple(cast("Mapping[str, object]", schema.get("properties", {})))
    patterns = tuple(cast("Mapping[str, object]", schema.get("patternProperties", {})))
    languages = [pattern_language(pattern) for pattern in patterns]
    rules = [
        (NameClass(within=frozenset([language])), child("patternProperties", pattern))
        for pattern, language in zip(patterns, languages, strict=True)
    ]
    if "additionalProperties" in schema:
        others = NameClass(outside=frozenset(languages), barred=frozenset(names))
        rules.append((others, child("additionalProperties")))
    seen = frozenset[object]()
    if track:
        seen = frozenset([ANY_TEXT]) if "additionalProperties" in schema else frozenset([*names, *languages])
    return with_objects(
        ObjectSet(
            names=tuple((name, child("properties", name)) for name in names),
            rules=frozenset(rule for rule in rules if rule[1] != TRUE),
            seen=cast("frozenset[str]", seen),
        )
    )


def unevaluated_properties_form(form: Form, term: Term) -> Form:
    """`form` with `unevaluatedProperties` applied to what its alternatives have not seen."""
    parts: list[ObjectSet] = []
    for part in form.objects:
        if ANY_TEXT not in part.seen and term != TRUE:
            languages = frozenset(one for one in part.seen if not isinstance(one, str))
            names = frozenset(one for one in part.seen if isinstance(one, str))
            rule = ObjectSet(rules=frozenset([(NameClass(outside=languages, barred=names), term)]))
            parts.extend(intersect(with_objects(part), with_objects(rule)).objects)
        else:
            parts.append(part)
    return replace(form, objects=tuple(replace(part, seen=frozenset([ANY_TEXT])) for part in parts))


def property_names_form(names: Form) -> Form:
    """The values whose member names are all in `names`."""
    if names.texts == (ALL_TEXTS,):
        return EVERYTHING
    language = union(part.language() for part in names.texts)
    barred = NameClass(outside=frozenset([language])) if names.texts else ALL_NAMES
    form = with_objects(ObjectSet(rules=frozenset([(barred, FALSE)])))
    return replace(form, inexact=names.inexact or any(part.offered for part in names.texts))


def required_form(names: list[str]) -> Form:
    """The values that have all of `names`, or are no objects."""
    return with_objects(ObjectSet(required=tuple(dict.fromkeys(names))))


def dependent_form(name: str, then: Form) -> Form:
    """The values that have no member `name`, and those that have one and are in `then`."""
    absent = ObjectSet(names=((name, FALSE),))
    return unite([with_objects(absent), intersect(with_objects(ObjectSet(required=(name,))), then)])


def count_form(keyword: str, value: int) -> Form:
    """The values that one keyword for the number of items or members lets pass."""
    match keyword:
        case "minItems":
            return with_arrays(ArraySet(low=value))
        case "maxItems":
            return with_arrays(ArraySet(high=value))
        case "minProperties":
            return with_objects(ObjectSet(low=value))
        case _:
            return with_objects(ObjectSet(high=value))


def with_arrays(part: ArraySet) -> Form:
    """The arrays of `part`, and everything that is no array."""
    kept = trimmed(part)
    found = () if kept is None else (kept,)
    return Form(True, True, True, EVERYTHING.numbers, EVERYTHING.texts, found, EVERYTHING.objects)


def with_objects(part: ObjectSet) -> Form:
    """The objects of `part`, and everything that is no object."""
    return Form(True, True, True, EVERYTHING.numbers, EVERYTHING.texts, EVERYTHING.arrays, (part,))
