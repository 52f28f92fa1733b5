"""What a gen with tools gives: the text and the calls of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_lite.chat_formats.tools import ToolFormat
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.reasoning import Half, ThinkingFormat, ThinkingValue
from sglang_lite.lang.values import OpValue


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `id` is the same in every run, and 9 letters and digits long."""

    name: str
    arguments: dict[str, Any]
    id: str

    def to_openai(self) -> dict[str, Any]:
        """As OpenAI's messages have it."""
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What the model answered: its text without the calls, and the calls in order.

    `faults`: what is wrong with each call that could not be read; such a call is neither text nor call.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ReplyReader:
    """Reads replies of one gen. `is_off`: the gen may call nothing, so that its text is text."""

    form: ToolFormat
    is_off: bool = False

    def read(self, op: int, value: str | list[str] | None) -> ToolReply | list[ToolReply]:
        """The reply, or the replies where the gen has `n > 1`."""
        if isinstance(value, list):
            return [self._reply(op, number, text) for number, text in enumerate(value)]
        return self._reply(op, 0, value or "")

    def _reply(self, op: int, sample: int, text: str) -> ToolReply:
        if self.is_off:
            return ToolReply(text)
        parsed = self.form.read(text)
        calls = (
            ToolCall(call.name, call.arguments, f"c{op % 10_000:04d}{sample % 100:02d}{number % 100:02d}")
            for number, call in enumerate(parsed.calls)
        )
        return ToolReply(parsed.text, tuple(calls), parsed.faults)


class ToolValue(OpValue):
    """The value of a gen with tools."""

    def __init__(self, future: OpFuture, reader: ReplyReader) -> None:
        super().__init__(future)
        self.reader = reader

    def get(self) -> Any:
        """The reply, or a list of replies where the gen has `n > 1`."""
        return self.reader.read(self.future.op.id, self.text())


class ThinkingToolValue(ThinkingValue):
    """The answer of a gen with tools that thinks."""

    def __init__(self, future: OpFuture, thinking_format: ThinkingFormat, half: Half, reader: ReplyReader) -> None:
        super().__init__(future, thinking_format, half)
        self.reader = reader

    def get(self) -> Any:
        """The reply, or a list of replies where the gen has `n > 1`."""
        return self.reader.read(self.future.op.id, self.text())


def result_text(value: Any) -> str:
    """What a tool gave as text for the model: texts as they are, else JSON; what has no JSON form by `str`."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)
