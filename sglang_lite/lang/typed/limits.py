"""Bounds that an annotation puts on a type: JSON Schema's words for them, and whether a JSON value keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

_CHECKS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least {}", lambda value, bound: value >= bound),
    "maximum": ("at most {}", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than {}", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than {}", lambda value, bound: value < bound),
    "multipleOf": ("a multiple of {}", lambda value, bound: value % bound == 0),
    "minLength": ("at least {} characters", lambda value, bound: len(value) >= bound),
    "maxLength": ("at most {} characters", lambda value, bound: len(value) <= bound),
    "pattern": ("a text that has a match of {!r}", lambda value, bound: re.search(bound, value) is not None),
    "minItems": ("at least {} items", lambda value, bound: len(value) >= bound),
    "maxItems": ("at most {} items", lambda value, bound: len(value) <= bound),
}
_TEXT_ONLY = ("minLength", "maxLength", "pattern")
_LIST_ONLY = ("minItems", "maxItems")

# annotated_types and pydantic keep their bounds under the same names as `Limits`.
_ATTRIBUTES = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "description": "description",
}
_LENGTHS = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a type, in an annotation: `Annotated[str, Limits(max_length=40)]`.

    `ge`, `gt`, `le`, `lt`, `multiple_of`: of a number. `min_length`, `max_length`: characters of a text, items of a list.
    `pattern`: a regular expression that has a match in the text.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def __repr__(self) -> str:
        given = [f"{f.name}={value!r}" for f in fields(self) if (value := getattr(self, f.name)) is not None]
        return f"Limits({', '.join(given)})"


def broken_bound(keywords: Mapping[str, Any], value: object) -> str | None:
    """What was expected where a JSON value breaks a bound; None: it keeps all that are about its kind."""
    for keyword, bound in keywords.items():
        if keyword in _CHECKS and _is_about(keyword, value):
            words, is_kept = _CHECKS[keyword]
            if not is_kept(value, bound):
                return words.format(bound)
    return None


def _is_about(keyword: str, value: object) -> bool:
    if keyword in _TEXT_ONLY:
        return isinstance(value, str)
    if keyword in _LIST_ONLY:
        return isinstance(value, list)
    return isinstance(value, int | float) and not isinstance(value, bool)


def keywords_of(metadata: Sequence[object], is_list: bool) -> dict[str, Any]:
    """JSON Schema's keywords for the metadata of an `Annotated`: a text (a description), `Limits`, bounds of annotated_types.

    What is none of these is for others, and has no effect here.
    """
    keywords: dict[str, Any] = {}
    for item in metadata:
        keywords.update({"description": item} if isinstance(item, str) else _attributes(item, is_list))
    return keywords


def _attributes(item: object, is_list: bool) -> dict[str, Any]:
    found = {word: getattr(item, name, None) for name, word in _ATTRIBUTES.items()}
    found.update({words[is_list]: getattr(item, name, None) for name, words in _LENGTHS.items()})
    inner: Sequence[Any] = getattr(item, "metadata", None) or ()  # pydantic's Field(...) keeps its bounds there
    for part in inner:
        found.update(_attributes(part, is_list))
    return {word: value for word, value in found.items() if isinstance(value, int | float | str)}
