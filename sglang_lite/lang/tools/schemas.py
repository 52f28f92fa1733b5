"""Tools as a program gives them (functions, OpenAI's dicts, pydantic models) as schemas and back to calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from sglang_lite.chat_formats.calls import function_of
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.typed.forms import Form, MismatchError, path_text
from sglang_lite.lang.typed.objects import Member, ObjectForm
from sglang_lite.lang.typed.of_type import form_of


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One tool. `spec`: it in OpenAI's form. `run`: what a call of it does; None: the program does that itself.

    `arguments`: what the arguments are checked by, and turned into the types that `run` wants; None: they go as they are.
    """

    name: str
    spec: dict[str, Any]
    run: Callable[..., Any] | None = None
    arguments: Form | None = None

    def read(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments as `run` gets them: by name, or the object of a pydantic model.

        Raises:
            RequestError: they are none of this tool; says which and why.
        """
        if self.arguments is None:
            return dict(arguments)
        try:
            return self.arguments.build(dict(arguments), ())
        except MismatchError as error:
            faults = "; ".join(f"{path_text(path)}: {fault}" for path, fault in error.failures)
            raise RequestError(f"calling the tool {self.name!r}: {faults}") from error


def read_tools(tools: Sequence[Any]) -> tuple[Tool, ...]:
    """The tools of a program; nothing given is changed.

    Each is a function (its signature and docstring make the schema), a tool in OpenAI's form, or a pydantic model.

    Raises:
        RequestError: none at all, something else among them, or two of one name.
        UnsupportedError: a parameter whose type has no form here.
    """
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable) or not tools:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"reading tools: got {tools!r:.200}, expected a list with at least one")
    found = tuple(_tool(tool) for tool in tools)
    names = [tool.name for tool in found]
    if len(set(names)) < len(names):
        raise RequestError(f"reading tools: got the names {names}, expected each once")
    return found


def _tool(given: Any) -> Tool:
    if isinstance(given, Tool):
        return given
    if isinstance(given, Mapping):
        function = function_of(cast("Mapping[str, Any]", given))
        return Tool(function["name"], {"type": "function", "function": function})
    if isinstance(given, type):
        return _of_class(given)
    if inspect.isroutine(given):
        return _of_function(given)
    raise RequestError(
        f"reading a tool: got {given!r:.200}, expected a function, a tool in OpenAI's form or a pydantic model"
    )


def _of_class(given: type) -> Tool:
    form = form_of(given)
    schema = form.root_schema()
    if schema.get("type") != "object":
        raise RequestError(f"reading the tool {given.__name__}: it is no class with members, expected a pydantic model")
    description = str(schema.pop("description", "") or "")
    spec = {"name": given.__name__, "description": description, "parameters": schema}
    return Tool(given.__name__, {"type": "function", "function": spec}, None, form)


def _of_function(function: Callable[..., Any]) -> Tool:
    name = function.__name__
    if not re.fullmatch(r"\w+", name):
        raise RequestError(f"reading the tool {function!r}: it has no name of its own; write it as a def")
    hints = get_type_hints(function, include_extras=True)
    description, about = _documented(inspect.getdoc(function) or "")
    form = ObjectForm(name, dict, may_refuse=False)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RequestError(
                f"reading the tool {name!r}: its parameter {parameter} cannot be given by name; name each parameter"
            )
        form.members[parameter.name] = Member(
            parameter.name,
            _form_of_parameter(name, parameter.name, hints.get(parameter.name, Any)),
            parameter.default is parameter.empty,
        )
    schema = form.root_schema()
    for member, text in about.items():
        if member in form.members:
            schema["properties"][member]["description"] = text
    spec = {"name": name, "description": description, "parameters": schema}
    return Tool(name, {"type": "function", "function": spec}, function, form)


def _form_of_parameter(tool: str, name: str, annotation: Any) -> Form:
    try:
        return form_of(annotation)
    except UnsupportedError as error:
        raise UnsupportedError(f"reading the tool {tool!r}, parameter {name!r}: {error}") from error


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """The description in a docstring, and what its section `Args:` says about each parameter."""
    head, _, rest = text.partition("\nArgs:\n")
    about: dict[str, str] = {}
    last: str | None = None
    for line in rest.splitlines():
        if not line.strip() or not line[0].isspace():
            break
        match = re.match(r"\s+(\w+)(?: \([^)]*\))?: (.+)", line)
        if match is not None:
            name: str = match[1]
            last = name
            about[name] = match[2].strip()
        elif last is not None:
            about[last] += f" {line.strip()}"
    return re.split(r"\n(?:Returns|Raises|Yields):", head)[0].strip(), about
