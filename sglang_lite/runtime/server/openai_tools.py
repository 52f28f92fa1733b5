"""Tools of a request: which ones the model is shown, which ones it may or must call, and what holds it to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_lite.chat_formats.calls import function_of
from sglang_lite.chat_formats.tools import ToolFormat
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.server.errors import FieldError

Tool = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one request.

    Attributes:
        shown: tools in the prompt, in OpenAI's form.
        allowed: those that may be called.
        choice: `auto`, `none` or `required`.
        is_parallel: one answer may have several calls.
        is_strict: every tool asks for its schema as it is.
    """

    shown: list[Tool] = field(default_factory=list[Tool])
    allowed: list[Tool] = field(default_factory=list[Tool])
    choice: str = "none"
    is_parallel: bool = True
    is_strict: bool = False

    def constraint(self, form: ToolFormat, answer: Mapping[str, Any] | None) -> dict[str, Any]:
        """The sampling parameters that hold the model to the tools; {}: nothing does. `answer`: see `ToolFormat`."""
        found = form.constraint(self.allowed, self.choice, parallel=self.is_parallel, answer=answer)
        return {} if found is None else {found[0]: found[1], "json_strict": self.is_strict}


def read_tools(tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> ToolSet:
    """The tools of a chat request.

    Raises:
        RequestError: a tool that is malformed or there twice, a choice that is none, or one without tools; by its place.
        UnsupportedError: a kind of tool that is not built.
    """
    if not tools:
        if choice not in (None, "none"):
            raise FieldError(
                f"reading the request: tool_choice={choice!r:.80} without tools; give tools", "tool_choice"
            )
        return ToolSet()
    shown = [_tool(i, tool) for i, tool in enumerate(tools)]
    names = [tool["function"]["name"] for tool in shown]
    if len(set(names)) < len(names):
        raise FieldError(f"reading the request: tools has the names {names!r:.200}, expected each once", "tools")
    allowed = shown
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice, wanted = _allowed(choice)
        if missing := [name for name in wanted if name not in names]:
            raise _unknown(missing[0], names)
        allowed = [tool for tool in shown if tool["function"]["name"] in wanted]
    mode, name = _choice(choice, names)
    if name is not None:
        allowed, parallel = [tool for tool in shown if tool["function"]["name"] == name], False
    is_strict = all(tool["function"].get("strict") is True for tool in tools if isinstance(tool.get("function"), dict))
    return ToolSet([] if mode == "none" else shown, allowed, mode, parallel is not False, is_strict)


def _tool(index: int, tool: Any) -> Tool:
    where = f"tools.{index}"
    if not isinstance(tool, dict):
        raise FieldError(f"reading the request: {where} is {tool!r:.80}, expected an object", where)
    if tool.get("type", "function") != "function":
        raise UnsupportedError(
            f"reading the request: {where}: tools of type {tool['type']!r:.40} are not supported; use functions"
        )
    try:
        return {"type": "function", "function": function_of(tool)}
    except RequestError as error:
        raise FieldError(f"reading the request: {where}: {error}", where) from error


def _allowed(choice: dict[str, Any]) -> tuple[Any, list[str]]:
    """The mode and names of a choice among some of the tools."""
    inner = choice.get("allowed_tools", choice)
    entries = inner.get("tools") if isinstance(inner, dict) else None
    if not isinstance(entries, list) or not entries:
        raise FieldError("reading the request: tool_choice.allowed_tools has no tools, expected some", "tool_choice")
    names = [entry.get("function", entry).get("name") if isinstance(entry, dict) else None for entry in entries]
    return inner.get("mode", "auto"), [str(name) for name in names]


def _choice(choice: Any, names: Sequence[str]) -> tuple[str, str | None]:
    """The mode, and the tool that must be called, if it is one."""
    if choice in (None, "auto", "none", "required"):
        return str(choice or "auto"), None
    name = None
    if isinstance(choice, dict) and choice.get("type") == "function":
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        raise FieldError(
            f"reading the request: tool_choice={json.dumps(choice)[:80]}, expected auto, none, required or "
            '{"type": "function", "function": {"name": ...}}',
            "tool_choice",
        )
    if name not in names:
        raise _unknown(name, names)
    return "required", name


def _unknown(name: str, names: Sequence[str]) -> FieldError:
    return FieldError(
        f"reading the request: tool_choice names {name!r:.80}, expected one of {list(names)!r:.200}", "tool_choice"
    )
