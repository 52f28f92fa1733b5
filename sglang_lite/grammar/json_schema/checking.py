"""Whether a schema is well-formed: the shape of every keyword's value, with its place; knows no meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema.documents import ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, Document, step
from sglang_lite.grammar.json_schema.patterns import pattern_language

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def is_number(value: object) -> bool:
    """Whether `value` is a JSON number; Python's booleans and non-finite floats are none."""
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) != float("inf")
    )


def is_count(value: object) -> bool:
    """Whether `value` is a whole number of at least 0; 2.0 is one."""
    return is_number(value) and value == int(cast("int", value)) and cast("int", value) >= 0


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value))


def _is_types(value: object) -> bool:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(name in TYPES for name in names if isinstance(name, str)) and all(isinstance(one, str) for one in names)


def _is_bound(value: object) -> bool:
    return is_number(value) or isinstance(value, bool)  # draft 4 has booleans beside `minimum`


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping | bool)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_factor(value: object) -> bool:
    return is_number(value) and cast("float", value) > 0


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_Rule = tuple[Callable[[object], bool], str]
_COUNT: _Rule = (is_count, "a whole number of at least 0")
_NUMBER: _Rule = (is_number, "a number")
_SHAPES: dict[str, _Rule] = {
    **dict.fromkeys(ONE_SCHEMA, (_is_schema, "a schema")),
    **dict.fromkeys(SCHEMA_LISTS, (_is_list, "a list of schemas")),
    **dict.fromkeys(SCHEMA_MAPS, (_is_map, "an object whose values are schemas")),
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        _COUNT,
    ),
    **dict.fromkeys(("minimum", "maximum"), _NUMBER),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (_is_bound, "a number")),
    **dict.fromkeys(("pattern", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$id"), (_is_string, "a string")),
    "multipleOf": (_is_factor, "a number above 0"),
    "type": (_is_types, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (_is_list, "a list of values"),
    "required": (_is_names, "a list of names"),
    "dependentRequired": (_is_map, "an object whose values are lists of names"),
    "items": (lambda value: isinstance(value, Mapping | bool | list), "a schema"),
    "uniqueItems": (_is_bool, "true or false"),
}


def check_document(document: Document) -> None:
    """Check every place of `document` where keywords hold schemas.

    Raises:
        InvalidGrammarError: naming the first malformed keyword and its JSON Pointer.
    """
    if not isinstance(document.root, Mapping | bool):
        raise InvalidGrammarError(
            f"reading a JSON Schema: the schema is a {type(document.root).__name__}, expected an object or a boolean"
        )
    for pointer, schema in document.visited.items():
        check_schema(pointer, schema)


def check_schema(pointer: str, schema: Mapping[str, object]) -> None:
    """Check the keywords of one schema object, not of those inside it.

    Raises:
        InvalidGrammarError: naming the malformed keyword and its JSON Pointer.
    """
    for keyword, value in schema.items():
        at = step(pointer, keyword)
        rule = _SHAPES.get(keyword)
        if rule is not None and not rule[0](value):
            raise _malformed(at, value, rule[1])
        if keyword in SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
            _check_members(at, dict(enumerate(cast("list[object]", value))), with_names=False)
        elif keyword in SCHEMA_MAPS:
            _check_members(at, cast("Mapping[object, object]", value), with_names=keyword == "dependencies")
        elif keyword == "dependentRequired":
            for name, names in cast("Mapping[str, object]", value).items():
                if not _is_names(names):
                    raise _malformed(step(at, name), names, "a list of names")
        if keyword == "pattern":
            _check_pattern(at, cast("str", value))
        elif keyword == "patternProperties":
            for pattern in cast("Mapping[str, object]", value):
                _check_pattern(step(at, pattern), pattern)


def _check_members(at: str, members: Mapping[object, object], *, with_names: bool) -> None:
    for name, member in members.items():
        if not (_is_schema(member) or (with_names and _is_names(member))):
            raise _malformed(step(at, name), member, "a schema")


def _check_pattern(at: str, pattern: str) -> None:
    try:
        pattern_language(pattern)
    except UnsupportedGrammarError:
        return  # it may be in a part of the schema that no value reaches
    except InvalidGrammarError as error:
        raise InvalidGrammarError(f"reading a JSON Schema: the pattern at #{at}: {error}") from error


def _malformed(at: str, value: object, expected: str) -> InvalidGrammarError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return InvalidGrammarError(f"reading a JSON Schema: #{at} is {shown}, expected {expected}")
