"""Tools on hosted APIs: which choice a gen's constraint means, and results that answer the API's own calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sglang_lite.lang.backends.hosted.messages import Message
from sglang_lite.request_tree import SamplingParams


def choice_of(params: SamplingParams) -> str:
    """What the model may do with its tools: `auto`, `required`, `none`, or the name of the one that it must call."""
    if params.structural_tag is None:
        return "none"
    form: Mapping[str, Any] = json.loads(params.structural_tag)["format"]
    if form["type"] != "or":
        return "auto"
    names = [name_in(str(tag["begin"])) for tag in form["elements"]]
    return names[0] if len(names) == 1 else "required"


def name_in(begin: str) -> str:
    """The tool's name in the text that begins a call of it."""
    rest = begin[begin.index('"name"') + len('"name"') :].lstrip(" :")
    return str(json.JSONDecoder().raw_decode(rest)[0])


def paired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, each result of a tool with the id that the API gave the call: by the call's name, else in order."""
    open_calls: list[Mapping[str, Any]] = []
    out: list[Message] = []
    for message in messages:
        if message["role"] != "tool":
            open_calls = list(message.get("tool_calls") or ())
            out.append(message)
            continue
        given = message.get("tool_call_id")
        call = next((call for call in open_calls if call["id"] == given), None)
        call = call or next((c for c in open_calls if c["function"]["name"] == message.get("name")), None)
        call = call or next(iter(open_calls), None)
        if call is None:  # nobody called: to the API it is what the user says
            out.append({"role": "user", "content": message["content"]})
            continue
        open_calls.remove(call)
        out.append({"role": "tool", "tool_call_id": call["id"], "content": message["content"]})
    return tuple(out)
