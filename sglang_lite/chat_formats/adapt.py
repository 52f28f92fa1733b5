"""Messages for templates that know no tools: schemas, calls and results in one documented form; else as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sglang_lite.chat_formats.calls import Call, arguments_of, function_of
from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.chat_formats.tools import ToolFormat

Message = dict[str, Any]


def tools_block(tools: Sequence[Mapping[str, Any]], form: ToolFormat) -> str:
    """The system text that tells a model which tools there are and how to call them."""
    schemas = "\n".join(
        json.dumps({"type": "function", "function": function_of(tool)}, ensure_ascii=False) for tool in tools
    )
    example = f'{form.begin}{{"name": <function name>, "{form.arguments_key}": <arguments as a JSON object>}}{form.end}'
    return (
        "# Tools\n\nYou may call one or more functions. These are their signatures, one a line:\n"
        f"<tools>\n{schemas}\n</tools>\n\nTo call a function, write:\n{example}"
    )


def adapt(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, form: ChatFormat
) -> tuple[list[Message], dict[str, Any]]:
    """The messages and variables to render a dialogue with tools with; nothing given is changed.

    A template that shows tools gets them as they are, arguments as objects. Any other one gets the tools as a block at
    the end of the system message (a new first one, where there is none), calls as text of the assistant, and results,
    unless it has the role `tool`, as a user turn with `<tool_response>` around each.

    Raises:
        RequestError: a tool or a call is malformed.
    """
    shown = [_with_calls(message, form) for message in messages]
    if not form.has_tool_role:
        shown = _without_tool_turns(shown)
    if not tools:
        return shown, {}
    if form.shows_tools:
        return shown, {"tools": [{"type": "function", "function": function_of(tool)} for tool in tools]}
    block = tools_block(tools, form.tool_format)
    if shown and shown[0].get("role") == "system":
        first = {**shown[0], "content": f"{shown[0].get('content') or ''}\n\n{block}".lstrip()}
        return [first, *shown[1:]], {}
    return [{"role": "system", "content": block}, *shown], {}


def _with_calls(message: Mapping[str, Any], form: ChatFormat) -> Message:
    """A message with its calls as the template wants them."""
    copy = dict(message)
    calls = copy.get("tool_calls")
    if not calls:
        copy.pop("tool_calls", None)
        return copy
    functions = [call.get("function", call) for call in calls]
    if form.shows_tools:
        copy["tool_calls"] = [
            {**call, "function": {**function, "arguments": arguments_of(function.get("arguments"))}}
            for call, function in zip(calls, functions, strict=True)
        ]
        copy["content"] = copy.get("content") or ""
        return copy
    del copy["tool_calls"]
    shown = form.tool_format.show(
        [Call(str(function.get("name")), arguments_of(function.get("arguments"))) for function in functions]
    )
    content = copy.get("content") or ""
    copy["content"] = f"{content}\n{shown}" if content else shown
    return copy


def _without_tool_turns(messages: Sequence[Message]) -> list[Message]:
    found: list[Message] = []
    was_tool = False
    for message in messages:
        is_tool = message.get("role") == "tool"
        if not is_tool:
            found.append(message)
        else:
            text = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
            if was_tool:
                found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n{text}"}
            else:
                found.append({"role": "user", "content": text})
        was_tool = is_tool
    return found
