"""Whether a JSON value fits a JSON Schema: the keywords that constrain answers; a keyword outside them is no fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


def find_fault(value: Any, schema: Any) -> str | None:
    """What is wrong with `value`, with the place; None: it fits.

    Known keywords: type, enum, const, properties, required, additionalProperties, patternProperties, items, prefixItems, the bounds of
    numbers, strings and arrays, pattern, anyOf, oneOf, allOf, not, and `$ref` inside the schema.
    """
    return next(_faults(value, schema, schema, "the value"), None)


def _faults(value: Any, schema: Any, root: Any, where: str) -> Iterator[str]:
    if schema is False:
        yield f"{where} is not allowed"
    if not isinstance(schema, Mapping):
        return
    node = cast("Mapping[str, Any]", schema)
    if "$ref" in node:
        yield from _faults(value, _resolved(str(node["$ref"]), root), root, where)
    yield from _plain_faults(value, node, where)
    yield from _combined_faults(value, node, root, where)
    if isinstance(value, dict):
        yield from _object_faults(cast("dict[str, Any]", value), node, root, where)
    elif isinstance(value, list):
        yield from _array_faults(cast("list[Any]", value), node, root, where)


def _resolved(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,))) and (kind != "integer" or value == int(value))


def _plain_faults(value: Any, node: Mapping[str, Any], where: str) -> Iterator[str]:
    kinds = node.get("type")
    if kinds is not None:
        names = [kinds] if isinstance(kinds, str) else list(kinds)
        if not any(_is_of(value, name) for name in names):
            yield f"{where} is {_shown(value)}, expected {' or '.join(names)}"
    for allowed in ([node["const"]] if "const" in node else None), node.get("enum"):
        if allowed is not None and not any(_equal(value, one) for one in allowed):
            yield f"{where} is {_shown(value)}, expected one of {_shown(allowed)}"
    if isinstance(value, str):
        yield from _size_faults(len(value), node, "Length", "characters", where)
        if "pattern" in node and not re.search(str(node["pattern"]), value):
            yield f"{where} is {_shown(value)}, which does not match {node['pattern']!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = node.get("minimum"), node.get("maximum")
        above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
        if (low is not None and value < low) or (high is not None and value > high):
            yield f"{where} is {value}, out of bounds"
        if (above is not None and value <= above) or (below is not None and value >= below):
            yield f"{where} is {value}, out of bounds"
        step = node.get("multipleOf")
        if step and abs(value / step - round(value / step)) > 1e-9:
            yield f"{where} is {value}, expected a multiple of {step}"


def _equal(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _size_faults(size: int, node: Mapping[str, Any], suffix: str, unit: str, where: str) -> Iterator[str]:
    low, high = node.get(f"min{suffix}", 0), node.get(f"max{suffix}")
    if size < low or (high is not None and size > high):
        yield f"{where} has {size} {unit}, expected {low} to {'any number' if high is None else high}"


def _combined_faults(value: Any, node: Mapping[str, Any], root: Any, where: str) -> Iterator[str]:
    for part in node.get("allOf", ()):
        yield from _faults(value, part, root, where)
    for key in ("anyOf", "oneOf"):
        if key in node:
            fitting = sum(next(_faults(value, part, root, where), None) is None for part in node[key])
            if fitting == 0 or (key == "oneOf" and fitting > 1):
                yield f"{where} is {_shown(value)}, which fits {fitting} of the alternatives"
    if "not" in node and next(_faults(value, node["not"], root, where), None) is None:
        yield f"{where} is {_shown(value)}, which is excluded"


def _object_faults(value: dict[str, Any], node: Mapping[str, Any], root: Any, where: str) -> Iterator[str]:
    fields: Mapping[str, Any] = node.get("properties") or {}
    for name in node.get("required") or ():
        if name not in value:
            yield f"{where} lacks {name!r}"
    yield from _size_faults(len(value), node, "Properties", "fields", where)
    patterns: Mapping[str, Any] = node.get("patternProperties") or {}
    for name, inner in value.items():
        parts = [fields[name]] if name in fields else []
        parts += [part for pattern, part in patterns.items() if re.search(pattern, name)]
        for part in parts or [node.get("additionalProperties", True)]:
            yield from _faults(inner, part, root, f"{where}.{name}")


def _array_faults(value: list[Any], node: Mapping[str, Any], root: Any, where: str) -> Iterator[str]:
    yield from _size_faults(len(value), node, "Items", "items", where)
    first: list[Any] = node.get("prefixItems") or []
    for index, inner in enumerate(value):
        part = first[index] if index < len(first) else node.get("items", True)
        yield from _faults(inner, part, root, f"{where}[{index}]")
    if node.get("uniqueItems") and len({json.dumps(one, sort_keys=True) for one in value}) < len(value):
        yield f"{where} has an item twice"
