"""How models write tool calls and thinking: recognised from a template, asked for, read back; knows no model and no language."""

from __future__ import annotations

from sglang_lite.chat_formats.adapt import adapt, tools_block
from sglang_lite.chat_formats.calls import Call, Parsed, arguments_of, function_of
from sglang_lite.chat_formats.recognise import ChatFormat, recognise
from sglang_lite.chat_formats.thinking import THINKING_FORMATS, ThinkingFormat
from sglang_lite.chat_formats.tools import TOOL_FORMATS, Constraint, ToolChoice, ToolFormat, tool_format

__all__ = [
    "THINKING_FORMATS",
    "TOOL_FORMATS",
    "Call",
    "ChatFormat",
    "Constraint",
    "Parsed",
    "ThinkingFormat",
    "ToolChoice",
    "ToolFormat",
    "adapt",
    "arguments_of",
    "function_of",
    "recognise",
    "tool_format",
    "tools_block",
]
