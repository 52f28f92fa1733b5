"""The parts of a JSON text that are complete, while the text still comes; it knows no types beyond their forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sglang_lite.lang.typed.forms import Form, MismatchError

_OPENERS, _CLOSERS = "[{", "]}"


class PartScanner:
    """Takes a JSON text in pieces; gives each element or member of its root once it is complete.

    A text that is no array or object has no parts; one that is no JSON gives none from there on.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_object = False
        self._item: list[str] = []
        self._key: Any = None
        self._count = 0
        self._is_over = False

    def feed(self, piece: str) -> Iterator[tuple[str | int, Any]]:
        """The parts that this piece completes: position or name, and the value as plain Python."""
        for char in piece:
            if self._is_over:
                return
            yield from self._take(char)

    def _take(self, char: str) -> Iterator[tuple[str | int, Any]]:
        if self._in_string:
            self._item.append(char)
            if self._is_escaped:
                self._is_escaped = False
            elif char == "\\":
                self._is_escaped = True
            elif char == '"':
                self._in_string = False
            return
        if self._depth == 0:
            self._begin(char)
            return
        if self._depth == 1 and char in ",]}":
            yield from self._end_item()
            self._is_over = self._is_over or char != ","
            return
        if self._depth == 1 and char == ":" and self._is_object and self._key is None:
            self._key = self._read()
            return
        self._in_string = char == '"'
        self._depth += (char in _OPENERS) - (char in _CLOSERS)
        self._item.append(char)

    def _begin(self, char: str) -> None:
        if char in _OPENERS:
            self._depth, self._is_object = 1, char == "{"
        elif not char.isspace():
            self._is_over = True

    def _end_item(self) -> Iterator[tuple[str | int, Any]]:
        value = self._read()
        if self._is_over or self._is_object is not isinstance(self._key, str):
            self._is_over = True  # an empty array or object, or no JSON
            return
        yield (self._count if self._key is None else self._key), value
        self._count, self._key = self._count + 1, None

    def _read(self) -> Any:
        text, self._item = "".join(self._item), []
        try:
            return json.loads(text)
        except ValueError:
            self._is_over = True
            return None


class TypedParts:
    """As `PartScanner`, with each part as a value of its type: elements of a list, `(name, value)` of an object."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._scanner = PartScanner()

    def feed(self, piece: str) -> Iterator[Any]:
        """The parts that this piece completes.

        Raises:
            MismatchError: one of them is no value of its type.
        """
        for key, raw in self._scanner.feed(piece):
            form = self._form.part(key)
            value = raw if form is None else form.build(raw, (key,))
            yield value if isinstance(key, int) else (key, value)


def complete_parts(form: Form, text: str) -> list[Any]:
    """The parts of a text that was cut; what is no value of its type is left out with all after it."""
    found: list[Any] = []
    try:
        found.extend(TypedParts(form).feed(text))
    except MismatchError:
        return found
    return found
