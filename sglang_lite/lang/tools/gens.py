"""The expressions of gens that may call tools, and of gens that think; pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.chat_formats.tools import Constraint
from sglang_lite.errors import RequestError
from sglang_lite.lang.ir import SglExpr, SglGen
from sglang_lite.lang.tools.schemas import Tool, read_tools

Thinking: TypeAlias = Literal["auto", "off"] | int
"""As the model likes; not at all; or at most that many tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class SglToolGen(SglGen):
    """A gen that may call `tools`; its value is a `ToolReply`."""

    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's form."""
        return [tool.spec for tool in self.tools]

    def constraint(self, form: ChatFormat) -> Constraint | None:
        """What holds the text to calls of the tools."""
        return form.tool_format.constraint(self.specs, self.tool_choice)


@dataclass(frozen=True, slots=True, eq=False)
class SglThinking(SglExpr):
    """A gen whose thinking is kept apart. `keep`: it stays in the text; `marks`: in place of the model's own."""

    gen: SglGen
    thinking: Thinking
    keep: bool = False
    marks: tuple[str, str] | None = None


def tool_gen(gen: SglGen, tools: Any, tool_choice: Any) -> SglToolGen:
    """`gen` with tools.

    Args:
        tool_choice: `auto`, `none`, `required`, the name of a tool, or OpenAI's object with one.

    Raises:
        RequestError: tools that cannot be read, a choice that is none, or another constraint beside them.
        UnsupportedError: see `read_tools`.
    """
    what = f"making gen {gen.name!r}"
    if type(gen) is not SglGen:
        raise RequestError(f"{what}: got tools and a type, retries, describe or check; expected one of them")
    for name in ("regex", "json_schema", "dtype", "ebnf", "structural_tag"):
        if getattr(gen, name) is not None:
            raise RequestError(f"{what}: got tools and {name}, expected one of them")
    found = read_tools(tools)
    names = [tool.name for tool in found]
    choice: Any = "auto" if tool_choice is None else tool_choice
    if isinstance(choice, Mapping):
        named = cast("Mapping[str, Any]", choice)
        choice = named.get("function", named).get("name")
    if choice not in ("auto", "none", "required", *names):
        raise RequestError(f"{what}: got tool_choice={choice!r}, expected auto, none, required or one of {names}")
    values = {field.name: getattr(gen, field.name) for field in fields(SglGen)}
    return SglToolGen(**values, tools=found, tool_choice=choice)


def thinking_gen(gen: SglGen, thinking: Any, keep: bool, marks: Any) -> SglThinking:
    """`gen` with its thinking kept apart.

    Raises:
        RequestError: `thinking` is no setting, or `marks` are not two texts.
    """
    what = f"making gen {gen.name!r}"
    thinking = "auto" if thinking is None else thinking
    if thinking not in ("auto", "off") and (type(thinking) is not int or thinking < 0):
        raise RequestError(f"{what}: got thinking={thinking!r}, expected auto, off or a number of tokens >= 0")
    if marks is not None:
        marks = tuple(marks)
        if len(marks) != 2 or not all(isinstance(mark, str) and mark for mark in marks):
            raise RequestError(f"{what}: got thinking_marks={marks!r}, expected two texts")
    return SglThinking(gen, thinking, keep, marks)


def extended_gen(
    gen: SglGen, tools: Any, tool_choice: Any, thinking: Any, keep_thinking: bool, thinking_marks: Any
) -> SglExpr:
    """`gen` with what is asked of tools and thinking; nothing asked: as it is. Raises as `tool_gen`, `thinking_gen`."""
    if tools is not None:
        gen = tool_gen(gen, tools, tool_choice)
    elif tool_choice is not None:
        raise RequestError(f"making gen {gen.name!r}: got tool_choice={tool_choice!r} without tools; give tools, too")
    if thinking is None and not keep_thinking and thinking_marks is None:
        return gen
    return thinking_gen(gen, thinking, keep_thinking, thinking_marks)
