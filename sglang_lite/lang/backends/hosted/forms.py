"""Constraints as JSON that a hosted API can be held to, and what comes back as the text that the program asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sglang_lite.errors import ExecutionError
from sglang_lite.lang.backends.hosted.json_check import find_fault
from sglang_lite.lang.ir import (
    REGEX_BOOL,
    REGEX_FLOAT,
    REGEX_INT,
    REGEX_STR,
    REGEX_TYPED_BOOL,
    REGEX_TYPED_FLOAT,
    REGEX_TYPED_INT,
)
from sglang_lite.request_tree import SamplingParams

_WRAPPER = "value"
_OF_DTYPES: dict[str, dict[str, Any]] = {
    REGEX_INT: {"type": "integer"},
    REGEX_FLOAT: {"type": "number"},
    REGEX_BOOL: {"type": "boolean"},
    REGEX_STR: {"type": "string"},
    REGEX_TYPED_INT: {"type": "integer"},
    REGEX_TYPED_FLOAT: {"type": "number"},
    REGEX_TYPED_BOOL: {"type": "boolean"},
}
WRAPPER_TOKENS = 16
"""What the wrapper around a value may cost beside the value."""


class InvalidReplyError(ExecutionError):
    """What came back is not of the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Form:
    """A JSON Schema that the API gets. `is_wrapped`: the value is the field `value` of an object; `regex`: of its text."""

    schema: Mapping[str, Any]
    is_wrapped: bool = False
    regex: str | None = None
    choices: tuple[str, ...] | None = None

    @property
    def is_strict(self) -> bool:
        """True when every object in it is closed and needs all its fields, as OpenAI's strict mode wants it."""
        return _is_closed(self.schema)

    def text_of(self, reply: str) -> str:
        """The text that the program gets for what the API sent.

        Raises:
            InvalidReplyError: it is not of this form.
        """
        try:
            value = json.loads(reply)
        except ValueError as error:
            raise InvalidReplyError(f"reading an answer: no JSON ({error}): {reply[:200]!r}") from None
        fault = find_fault(value, self.schema)
        if fault is not None:
            raise InvalidReplyError(f"reading an answer: {fault}, in {reply[:200]!r}")
        if not self.is_wrapped:
            return reply
        inner = value[_WRAPPER]
        if self.choices is not None:
            return cast("str", inner)
        text = f'"{inner}"' if self.regex == REGEX_STR else _plain(inner)
        if self.regex is not None and not re.fullmatch(self.regex, text):
            raise InvalidReplyError(f"reading an answer: {text!r} does not match {self.regex!r}")
        return text


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def choice_form(choices: tuple[str, ...]) -> Form:
    """One of some texts."""
    return Form(_wrapped({"type": "string", "enum": list(dict.fromkeys(choices))}), is_wrapped=True, choices=choices)


def form_of(params: SamplingParams) -> Form | None:
    """The form that a generation's constraint asks for; None: it has none, or one that JSON cannot say."""
    if params.choices is not None:
        return choice_form(params.choices)
    if params.regex in _OF_DTYPES:
        return Form(_wrapped(_OF_DTYPES[params.regex]), is_wrapped=True, regex=params.regex)
    if params.json_schema is None:
        return None
    schema: Any = json.loads(params.json_schema)
    if isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "object":
        return Form(cast("dict[str, Any]", schema))
    return Form(_wrapped(schema), is_wrapped=True)


def _wrapped(schema: Any) -> dict[str, Any]:
    inner: Any = schema
    definitions: dict[str, Any] = {}
    if isinstance(schema, dict):  # references are from the root
        whole = cast("dict[str, Any]", schema)
        inner = {key: value for key, value in whole.items() if key not in ("$defs", "definitions")}
        definitions = {key: whole[key] for key in ("$defs", "definitions") if key in whole}
    return {
        "type": "object",
        "properties": {_WRAPPER: inner},
        "required": [_WRAPPER],
        "additionalProperties": False,
        **definitions,
    }


def _is_closed(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_closed, cast("list[Any]", schema)))
    if not isinstance(schema, Mapping):
        return True
    node = cast("Mapping[str, Any]", schema)
    if node.get("type") == "object" or "properties" in node:
        fields: Mapping[str, Any] = node.get("properties") or {}
        if node.get("additionalProperties") is not False or set(node.get("required") or ()) != set(fields):
            return False
        if not all(map(_is_closed, fields.values())):
            return False
    return all(_is_closed(value) for key, value in node.items() if key not in ("properties", "enum", "const"))
