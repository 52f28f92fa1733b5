"""Whether a JSON value is valid under a JSON Schema (2020-12), with the place in the schema of each fault; formats are not asserted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

_MAX_DEPTH = 200


class Fault(NamedTuple):
    """`pointer`: the keyword in the schema, as it was reached without following references further than once a step."""

    pointer: str
    message: str
    is_unknown: bool = False
    """It could not be checked."""


class _At(NamedTuple):
    """A value under a schema. `where`: the value's place, `pointer`: the schema's, `root`: the whole schema."""

    value: Any
    schema: Any
    where: str
    pointer: str
    root: Any
    depth: int


def find_faults(value: Any, schema: Any) -> list[Fault]:
    """Everything that is wrong with `value`; [] if it is valid. A pattern that is none and a reference to nothing are faults."""
    return list(_faults(_At(value, schema, "the value", "", schema, 0)))


def _faults(at: _At) -> Iterator[Fault]:
    if at.schema is False:
        yield Fault(at.pointer, f"{at.where} is not allowed")
    if not isinstance(at.schema, Mapping):
        return
    if at.depth > _MAX_DEPTH:
        yield Fault(at.pointer, f"{at.where} is nested too deep", is_unknown=True)
        return
    for keyword, check in _CHECKS.items():
        if keyword in at.schema:
            yield from check(at, keyword)


def _is_valid(at: _At) -> bool:
    return next(_faults(at), None) is None


def _under(at: _At, *steps: str | int) -> _At:
    """The same value under a part of the schema."""
    schema, pointer = at.schema, at.pointer
    for one in steps:
        schema = schema[one]
        pointer += "/" + str(one).replace("~", "~0").replace("/", "~1")
    return at._replace(schema=schema, pointer=pointer, depth=at.depth + 1)


def _child(at: _At, key: str | int, *steps: str | int) -> _At:
    """A member or item of the value under a part of the schema."""
    return _under(at, *steps)._replace(value=at.value[key], where=f"{at.where}[{key!r}]")


def _fault(at: _At, keyword: str, what: str) -> Fault:
    return Fault(f"{at.pointer}/{keyword}", f"{at.where} {what}")


def _equal(left: Any, right: Any) -> bool:
    """JSON equality: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    return left == right


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value == int(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _check_type(at: _At, keyword: str) -> Iterator[Fault]:
    wanted = at.schema[keyword]
    names = wanted if isinstance(wanted, list) else [wanted]
    if not any(_TYPES[name](at.value) for name in names if name in _TYPES):
        yield _fault(at, keyword, f"is not of type {' or '.join(map(str, names))}")


def _check_values(at: _At, keyword: str) -> Iterator[Fault]:
    allowed = at.schema[keyword] if keyword == "enum" else [at.schema[keyword]]
    if not any(_equal(at.value, one) for one in allowed):
        yield _fault(at, keyword, f"is none of {json.dumps(allowed)}")


def _bound(kind: type | tuple[type, ...], size: Callable[[Any], Any], holds: Callable[[Any, Any], bool]) -> Any:
    def check(at: _At, keyword: str) -> Iterator[Fault]:
        is_of_kind = isinstance(at.value, kind) and not isinstance(at.value, bool)
        if is_of_kind and not holds(size(at.value), at.schema[keyword]):
            yield _fault(at, keyword, f"breaks {keyword} {at.schema[keyword]}")

    return check


def _is_multiple(value: Any, factor: Any) -> bool:
    # By the decimal spelling: 0.3 is a multiple of 0.1.
    return (Fraction(str(value)) / Fraction(str(factor))).denominator == 1


def _check_pattern(at: _At, keyword: str) -> Iterator[Fault]:
    if not isinstance(at.value, str):
        return
    try:
        re.compile(at.schema[keyword])
    except re.error as error:
        yield Fault(f"{at.pointer}/{keyword}", f"Python cannot read {at.schema[keyword]!r}: {error}", is_unknown=True)
        return
    if not _searches(at.schema[keyword], at.value):
        yield _fault(at, keyword, f"does not match {at.schema[keyword]!r}")


def _searches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _check_required(at: _At, keyword: str) -> Iterator[Fault]:
    if isinstance(at.value, dict):
        for name in at.schema[keyword]:
            if name not in at.value:
                yield _fault(at, keyword, f"lacks {name!r}")


def _check_properties(at: _At, keyword: str) -> Iterator[Fault]:
    if isinstance(at.value, dict):
        for name in at.schema[keyword]:
            if name in at.value:
                yield from _faults(_child(at, name, keyword, name))


def _check_patterns(at: _At, keyword: str) -> Iterator[Fault]:
    if isinstance(at.value, dict):
        for pattern in at.schema[keyword]:
            for name in at.value:
                if _searches(pattern, name):
                    yield from _faults(_child(at, name, keyword, pattern))


def _check_additional(at: _At, keyword: str) -> Iterator[Fault]:
    if isinstance(at.value, dict):
        patterns = at.schema.get("patternProperties", {})
        for name in at.value:
            if name not in at.schema.get("properties", {}) and not any(_searches(one, name) for one in patterns):
                yield from _faults(_child(at, name, keyword))


def _check_names(at: _At, keyword: str) -> Iterator[Fault]:
    if isinstance(at.value, dict):
        for name in at.value:
            yield from _faults(_under(at, keyword)._replace(value=name, where=f"the name {name!r} in {at.where}"))


def _check_dependent(at: _At, keyword: str) -> Iterator[Fault]:
    if not isinstance(at.value, dict):
        return
    for name, needed in at.schema[keyword].items():
        if name not in at.value:
            continue
        if isinstance(needed, list):
            missing = [one for one in needed if one not in at.value]
            if missing:
                yield _fault(at, keyword, f"has {name!r} and lacks {missing[0]!r}")
        else:
            yield from _faults(_under(at, keyword, name))


def _check_items(at: _At, keyword: str) -> Iterator[Fault]:
    if not isinstance(at.value, list):
        return
    part = at.schema[keyword]
    if isinstance(part, list):  # prefixItems, and the old form of items
        for index in range(min(len(part), len(at.value))):
            yield from _faults(_child(at, index, keyword, index))
        return
    for index in range(len(at.schema.get("prefixItems", ())), len(at.value)):
        yield from _faults(_child(at, index, keyword))


def _check_contains(at: _At, keyword: str) -> Iterator[Fault]:
    if not isinstance(at.value, list):
        return
    found = sum(_is_valid(_child(at, index, keyword)) for index in range(len(at.value)))
    low, high = at.schema.get("minContains", 1), at.schema.get("maxContains", len(at.value))
    if not low <= found <= high:
        yield _fault(at, keyword, f"has {found} items that match, expected {low} to {high}")


def _check_unique(at: _At, keyword: str) -> Iterator[Fault]:
    items = at.value if at.schema[keyword] is True and isinstance(at.value, list) else []
    if any(_equal(items[i], items[j]) for i in range(len(items)) for j in range(i)):
        yield _fault(at, keyword, "has equal items")


def _check_all(at: _At, keyword: str) -> Iterator[Fault]:
    for index in range(len(at.schema[keyword])):
        yield from _faults(_under(at, keyword, index))


def _check_some(at: _At, keyword: str) -> Iterator[Fault]:
    found = sum(_is_valid(_under(at, keyword, index)) for index in range(len(at.schema[keyword])))
    if found < 1 or (keyword == "oneOf" and found > 1):
        yield _fault(at, keyword, f"fits {found} of the alternatives")


def _check_not(at: _At, keyword: str) -> Iterator[Fault]:
    if _is_valid(_under(at, keyword)):
        yield _fault(at, keyword, "is what must not be")


def _check_if(at: _At, keyword: str) -> Iterator[Fault]:
    branch = "then" if _is_valid(_under(at, keyword)) else "else"
    if branch in at.schema:
        for fault in _faults(_under(at, branch)):
            yield fault
            yield _fault(at, keyword, f"breaks {branch!r}: {fault.message}")


def _check_ref(at: _At, keyword: str) -> Iterator[Fault]:
    reference = at.schema[keyword]
    found, pointer = at.root, ""
    try:
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found[int(key) if isinstance(found, list) else key]
            pointer += f"/{part}"
    except (KeyError, ValueError, IndexError, TypeError):
        yield _fault(at, keyword, f"is under {reference!r}, which is not in the schema")
        return
    yield from _faults(at._replace(schema=found, pointer=pointer, depth=at.depth + 1))


_NUMBER = (int, float)
_CHECKS: dict[str, Callable[[_At, str], Iterator[Fault]]] = {
    "$ref": _check_ref,
    "type": _check_type,
    "enum": _check_values,
    "const": _check_values,
    "minimum": _bound(_NUMBER, lambda v: v, lambda v, b: v >= b),
    "maximum": _bound(_NUMBER, lambda v: v, lambda v, b: v <= b),
    "exclusiveMinimum": _bound(_NUMBER, lambda v: v, lambda v, b: v > b),
    "exclusiveMaximum": _bound(_NUMBER, lambda v: v, lambda v, b: v < b),
    "multipleOf": _bound(_NUMBER, lambda v: v, _is_multiple),
    "minLength": _bound(str, len, lambda n, b: n >= b),
    "maxLength": _bound(str, len, lambda n, b: n <= b),
    "minItems": _bound(list, len, lambda n, b: n >= b),
    "maxItems": _bound(list, len, lambda n, b: n <= b),
    "minProperties": _bound(dict, len, lambda n, b: n >= b),
    "maxProperties": _bound(dict, len, lambda n, b: n <= b),
    "pattern": _check_pattern,
    "required": _check_required,
    "properties": _check_properties,
    "patternProperties": _check_patterns,
    "additionalProperties": _check_additional,
    "propertyNames": _check_names,
    "dependentRequired": _check_dependent,
    "dependentSchemas": _check_dependent,
    "dependencies": _check_dependent,
    "prefixItems": _check_items,
    "items": _check_items,
    "contains": _check_contains,
    "uniqueItems": _check_unique,
    "allOf": _check_all,
    "anyOf": _check_some,
    "oneOf": _check_some,
    "not": _check_not,
    "if": _check_if,
}
CHECKED = frozenset({*_CHECKS, "then", "else", "minContains", "maxContains"})
"""Keywords that are checked."""
