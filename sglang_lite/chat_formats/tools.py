"""The forms in which model families write tool calls: what the model may write, how calls are shown, how they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sglang_lite.chat_formats.calls import Call, Parsed, call_of, function_of
from sglang_lite.errors import RequestError

ToolChoice: TypeAlias = str
"""`auto` (calls or text), `none`, `required` (one call), or the name of the tool that must be called."""

Constraint: TypeAlias = tuple[Literal["structural_tag", "json_schema"], str]
"""A field of the sampling parameters and its value."""

_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One form of tool calls.

    Attributes:
        name: how it is called in settings.
        begin, end: text around a call's JSON.
        arguments_key: the key of the arguments in it.
        between: text between two calls.
        is_free: the mark of a call is a special token of the model, which a constraint on text cannot ask for: with
            `auto` the model writes freely, and a required call is written without its mark.
        read: takes a model's text apart.
    """

    name: str
    begin: str
    end: str
    arguments_key: str
    between: str
    is_free: bool
    read: Callable[[str], Parsed]

    def constraint(
        self,
        tools: Sequence[Mapping[str, Any]],
        choice: ToolChoice,
        *,
        parallel: bool | None = None,
        answer: Mapping[str, Any] | None = None,
    ) -> Constraint | None:
        """What holds a generation to calls of `tools` (OpenAI's form); None: nothing.

        `auto`: free text with any number of calls, each by the schema of its tool. `required`, or a tool's name: one
        call and nothing else.

        Args:
            parallel: True: `required` is one or more calls; False: `auto` ends with its first call.
            answer: the form (of a structural tag) of a text without calls, with `auto`; then it is that or one call.

        Raises:
            RequestError: `choice` is no choice and no tool's name.
        """
        functions = [function_of(tool) for tool in tools]
        if choice not in ("auto", "none", "required"):
            functions = [function for function in functions if function["name"] == choice]
            if not functions:
                known = [function_of(tool)["name"] for tool in tools]
                raise RequestError(
                    f"choosing a tool: got tool_choice={choice!r}, expected auto, none, required or one of {known}"
                )
        if choice == "none" or not functions or (choice == "auto" and self.is_free and answer is None):
            return None
        tags = [self._tag(function) for function in functions]
        form: dict[str, Any]
        if choice == "auto" and answer is not None:
            form = {"type": "or", "elements": [*({"type": "tag", **tag} for tag in tags), dict(answer)]}
        elif choice == "auto":
            form = {"type": "triggered_tags", "triggers": [self._trigger()], "tags": tags}
            form |= {} if parallel is not False else {"stop_after_first": True}
        elif choice == "required" and parallel and not self.is_free:
            form = {"type": "tags_with_separator", "tags": tags, "separator": self.between}
        else:
            form = {"type": "or", "elements": [{"type": "tag", **tag} for tag in tags]}
        spec = {"type": "structural_tag", "format": form}
        return "structural_tag", json.dumps(spec, ensure_ascii=False)

    def _trigger(self) -> str:
        return self.begin.strip() or '{"name": "'

    def _tag(self, function: Mapping[str, Any]) -> dict[str, Any]:
        name = json.dumps(function["name"], ensure_ascii=False)
        begin = f'{self.begin}{{"name": {name}, "{self.arguments_key}": '
        content = {"type": "json_schema", "json_schema": function["parameters"]}
        return {"begin": begin, "content": content, "end": "}" + self.end}

    def show(self, calls: Sequence[Call]) -> str:
        """The text of calls, as the model would have written them."""
        shown = [
            json.dumps({"name": call.name, self.arguments_key: call.arguments}, ensure_ascii=False) for call in calls
        ]
        if self.is_free:  # one list for all
            return self.begin + ", ".join(shown) + self.end if shown else ""
        return self.between.join(f"{self.begin}{text}{self.end}" for text in shown)


def _read_hermes(text: str) -> Parsed:
    begin, end = "<tool_call>", "</tool_call>"
    outside: list[str] = []
    found: list[Call | str] = []
    at = 0
    while (start := text.find(begin, at)) >= 0:
        outside.append(text[at:start])
        body = start + len(begin)
        value, after = _json_at(text, body)
        if after is None:
            stop = text.find(end, body)
            after = len(text) if stop < 0 else stop
            found.append(f"a tool call is no JSON: {text[body:after].strip()!r:.200}")
        else:
            found.append(call_of(value))
        stop = text.find(end, after)
        at = len(text) if stop < 0 else stop + len(end)
    outside.append(text[at:])
    return _parsed(outside, found)


def _read_llama3(text: str) -> Parsed:
    outside: list[str] = []
    found: list[Call | str] = []
    at = 0
    for match in re.finditer(r'(?:<\|python_tag\|>\s*)?(\{\s*"(?:name|type)")', text):
        if match.start() < at:
            continue
        value, after = _json_at(text, match.start(1))
        call = call_of(value) if after is not None else "no call"
        if after is None or isinstance(call, str):
            continue  # JSON that is no call is text like any other
        outside.append(text[at : match.start()].rstrip(" ;\n"))
        found.append(call)
        at = after
    outside.append(text[at:].lstrip(";") if found else text)
    return _parsed(outside, found)


def _read_mistral(text: str) -> Parsed:
    mark = "[TOOL_CALLS]"
    match = re.search(r'(?:\[TOOL_CALLS\]\s*)?(\[\s*\{\s*"(?:name|arguments)")', text)
    start = text.find(mark) if match is None else match.start()
    if start < 0:
        return Parsed(text)
    body = start + len(mark) if match is None else match.start(1)
    value, after = _json_at(text, body)
    if after is None:
        return _parsed([text[:start]], [f"the tool calls are no JSON: {text[body:].strip()!r:.200}"])
    entries: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
    return _parsed([text[:start], text[after:]], [call_of(entry) for entry in entries])


def _json_at(text: str, at: int) -> tuple[Any, int | None]:
    """The JSON value that begins at `at`, white space left out, and where it ends; None: there is none."""
    while at < len(text) and text[at].isspace():
        at += 1
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, None


def _parsed(outside: Sequence[str], found: Sequence[Call | str]) -> Parsed:
    calls = tuple(call for call in found if isinstance(call, Call))
    faults = tuple(fault for fault in found if isinstance(fault, str))
    text = "".join(outside)
    return Parsed(text.strip() if found else text, calls, faults)


HERMES = ToolFormat("hermes", "<tool_call>\n", "\n</tool_call>", "arguments", "\n", False, _read_hermes)
LLAMA3 = ToolFormat("llama3", "", "", "parameters", "; ", False, _read_llama3)
MISTRAL = ToolFormat("mistral", "[", "]", "arguments", ", ", True, _read_mistral)

TOOL_FORMATS: dict[str, ToolFormat] = {
    "hermes": HERMES,
    "qwen": HERMES,
    "qwen25": HERMES,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
}
"""By the names of SGLang's tool call parsers."""


def tool_format(name: str) -> ToolFormat:
    """The format of a name.

    Raises:
        RequestError: there is none.
    """
    found = TOOL_FORMATS.get(name)
    if found is None:
        raise RequestError(f"choosing a tool call format: got {name!r}, expected one of {sorted(TOOL_FORMATS)}")
    return found
