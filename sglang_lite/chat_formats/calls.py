"""Tool calls as data: what a call is, and how it is read out of JSON that a model or a client wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sglang_lite.errors import RequestError


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool: its name and the arguments by name."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A model's text taken apart. `faults`: for each call that could not be read, what is wrong with it."""

    text: str
    calls: tuple[Call, ...] = ()
    faults: tuple[str, ...] = ()


def function_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The function of a tool in OpenAI's form: `name`, `description` and `parameters` (a JSON Schema).

    `{"type": "function", "function": {...}}` and the inner object alone are both taken.

    Raises:
        RequestError: it is neither; says what is missing.
    """
    inner: Any = tool.get("function", tool)
    if tool.get("type", "function") != "function" or not isinstance(inner, Mapping):
        raise RequestError(
            f"reading a tool: got {dict(tool)!r:.200}, expected {{'type': 'function', 'function': {{...}}}}"
        )
    function = cast("Mapping[str, Any]", inner)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"reading a tool: its name is {name!r}, expected a non-empty text")
    parameters: Any = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise RequestError(f"reading the tool {name!r}: its parameters are {parameters!r:.200}, expected a JSON Schema")
    found = {"name": name, "description": str(function.get("description") or "")}
    return {**found, "parameters": dict(cast("Mapping[str, Any]", parameters))}


def arguments_of(value: object) -> dict[str, Any]:
    """The arguments of a call: an object, or the JSON text of one, as OpenAI's API writes it.

    Raises:
        RequestError: it is neither.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError as error:
            raise RequestError(f"reading a tool call: its arguments are no JSON: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(f"reading a tool call: its arguments are {value!r:.200}, expected an object")
    return dict(cast("Mapping[str, Any]", value))


def call_of(value: object) -> Call | str:
    """The call that a decoded JSON value is, or what is wrong with it."""
    if not isinstance(value, Mapping):
        return f"a tool call is {value!r:.100}, expected an object with a name and arguments"
    entry = cast("Mapping[str, Any]", value)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return f"a tool call has the name {name!r:.100}, expected a text"
    try:
        return Call(name, arguments_of(entry.get("arguments", entry.get("parameters"))))
    except RequestError as error:
        return str(error)
