"""What a model's chat template says about its tool calls and its thinking; nothing has to be told by a flag."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sglang_lite.chat_formats.thinking import MARKS, ThinkingFormat
from sglang_lite.chat_formats.tools import HERMES, LLAMA3, MISTRAL, ToolFormat, tool_format


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a model's dialogues hold tool calls and thinking.

    Attributes:
        tools: name of the tool call format (`tool_format`).
        shows_tools: the template itself shows tools and calls in that format.
        has_tool_role: the template has turns of the role `tool`.
        thinking: marks around the thinking; None: the model is not known to think.
        thinking_switch: the template's variable that turns thinking on and off; None: it has none.
    """

    tools: str = "hermes"
    shows_tools: bool = False
    has_tool_role: bool = False
    thinking: ThinkingFormat | None = None
    thinking_switch: str | None = None

    @property
    def tool_format(self) -> ToolFormat:
        """The format of tool calls."""
        return tool_format(self.tools)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ChatFormat:
        """The format that `to_json` gave; unknown keys of a later release are left out."""
        thinking: Mapping[str, Any] | None = data.get("thinking")
        return ChatFormat(
            str(data.get("tools", "hermes")),
            bool(data.get("shows_tools")),
            bool(data.get("has_tool_role")),
            None
            if thinking is None
            else ThinkingFormat((thinking["marks"][0], thinking["marks"][1]), bool(thinking["starts_inside"])),
            data.get("thinking_switch"),
        )


def recognise(source: str | None, *, tokens: Container[str] = (), generation_prompt: str = "") -> ChatFormat:
    """The format of the model with the chat template `source` (None: it has none).

    A template whose tool calls have a form that is not offered counts as one without tools: calls are then asked for in
    a system block of our own.

    Args:
        tokens: texts that are tokens of their own in the vocabulary: marks of thinking are, where a template keeps silent.
        generation_prompt: a rendered prompt up to the answer: whether it opens the thinking.
    """
    text = source or ""
    own = _own_tools(text)
    return ChatFormat(
        (own or HERMES).name,
        shows_tools=own is not None,
        has_tool_role=re.search(r"""(['"])tool\1""", text) is not None,
        thinking=_thinking(text, tokens, generation_prompt),
        thinking_switch=_switch(text),
    )


def _own_tools(text: str) -> ToolFormat | None:
    if re.search(r"\btools\b", text) is None:
        return None
    if "[TOOL_CALLS]" in text and "[ARGS]" not in text:
        return MISTRAL
    if "<tool_call>" in text and "<function=" not in text and "<arg_key>" not in text:
        return HERMES
    if "python_tag" in text or '"parameters": dictionary' in text or '{"name": function name' in text:
        return LLAMA3
    return None


def _thinking(text: str, tokens: Container[str], generation_prompt: str) -> ThinkingFormat | None:
    for marks in MARKS:
        if marks[1] in text or all(mark in tokens for mark in marks):
            return ThinkingFormat(marks, starts_inside=generation_prompt.rstrip().endswith(marks[0]))
    return None


def _switch(text: str) -> str | None:
    return next(
        (name for name in ("enable_thinking", "thinking") if re.search(rf"(?<![\w'\"/<]){name}\b(?!['\">])", text)),
        None,
    )
