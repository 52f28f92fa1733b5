"""What the keywords of one schema object say about numbers and strings by themselves; knows no references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import cast

from sglang_lite.grammar.json_schema.checking import is_number
from sglang_lite.grammar.json_schema.formats import Format
from sglang_lite.grammar.json_schema.forms import EVERYTHING, Form, unite
from sglang_lite.grammar.json_schema.members import ALL_OBJECTS, NameClass, ObjectSet
from sglang_lite.grammar.json_schema.numeric import ALL_NUMBERS, NumberSet, number_values
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.json_schema.sequences import ALL_ARRAYS, ArraySet
from sglang_lite.grammar.json_schema.terms import FALSE, constant
from sglang_lite.grammar.json_schema.texts import ALL_TEXTS, TextSet, text_values

TEXT_KEYWORDS = ("minLength", "maxLength", "pattern")
NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_TYPE = {
    "null": Form(null=True),
    "boolean": Form(true=True, false=True),
    "integer": Form(numbers=(NumberSet(integral=True),)),
    "number": Form(numbers=(ALL_NUMBERS,)),
    "string": Form(texts=(ALL_TEXTS,)),
    "array": Form(arrays=(ALL_ARRAYS,)),
    "object": Form(objects=(ALL_OBJECTS,)),
}


def type_form(value: object, *, nullable: bool) -> Form:
    """The values of `type`; OpenAPI's `nullable` adds null."""
    names = cast("list[str]", value) if isinstance(value, list) else [cast("str", value)]
    return unite(_OF_TYPE[name] for name in [*names, *(["null"] if nullable else [])])


def exact(value: object) -> Fraction:
    """The number that the JSON text of `value` spells."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(cast("int", value))


def number_form(keyword: str, schema: Mapping[str, object]) -> Form:
    """The values that one keyword for numbers lets pass."""
    value = schema[keyword]
    if not is_number(value):  # draft 4: a boolean that the plain bound takes into account
        return EVERYTHING
    bound = exact(value)
    match keyword:
        case "minimum":
            part = NumberSet(low=bound, low_open=schema.get("exclusiveMinimum") is True)
        case "maximum":
            part = NumberSet(high=bound, high_open=schema.get("exclusiveMaximum") is True)
        case "exclusiveMinimum":
            part = NumberSet(low=bound, low_open=True)
        case "exclusiveMaximum":
            part = NumberSet(high=bound, high_open=True)
        case _:
            part = NumberSet(multiples=frozenset([bound]))
    return _with_numbers(part)


def text_form(keyword: str, value: object) -> Form:
    """The values that one keyword for strings lets pass."""
    match keyword:
        case "minLength":
            part = TextSet(low=int(cast("int", value)))
        case "maxLength":
            part = TextSet(high=int(cast("int", value)))
        case _:
            part = TextSet(within=frozenset([pattern_language(cast("str", value))]))
    return _with_texts(part)


def format_form(found: Format) -> Form:
    """The values that a format lets pass."""
    languages = frozenset([found.language])
    return _with_texts(TextSet(within=languages) if found.narrowed is None else TextSet(offered=languages))


def values_form(values: list[object]) -> Form:
    """Exactly these values."""
    numbers = frozenset(exact(value) for value in values if is_number(value))
    texts = frozenset(value for value in values if isinstance(value, str))
    return Form(
        null=None in values,
        true=any(value is True for value in values),
        false=any(value is False for value in values),
        numbers=(number_values(numbers),) if numbers else (),
        texts=(text_values(texts),) if texts else (),
        arrays=tuple(_array_of(value) for value in _distinct(values, list)),
        objects=tuple(_object_of(value) for value in _distinct(values, Mapping)),
    )


def _distinct(values: list[object], kind: type) -> Iterator[object]:
    return iter([value for value in values if isinstance(value, kind)])


def _array_of(value: object) -> ArraySet:
    items = cast("list[object]", value)
    return ArraySet(tuple(map(constant, items)), FALSE, len(items), len(items))


def _object_of(value: object) -> ObjectSet:
    members = cast("Mapping[str, object]", value)
    names = frozenset(members)
    return ObjectSet(
        names=tuple((name, constant(member)) for name, member in members.items()),
        required=tuple(members),
        rules=frozenset([(NameClass(barred=names), FALSE)]),
    )


def _with_numbers(part: NumberSet) -> Form:
    return Form(True, True, True, (part,), EVERYTHING.texts, EVERYTHING.arrays, EVERYTHING.objects)


def _with_texts(part: TextSet) -> Form:
    return Form(True, True, True, EVERYTHING.numbers, (part,), EVERYTHING.arrays, EVERYTHING.objects)
