"""A model's text taken apart as it comes: what it thinks, what it says, which tools it calls."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sglang_lite.chat_formats.call_reader import CallPiece, CallReader
from sglang_lite.chat_formats.splitting import ThinkingSplitter
from sglang_lite.chat_formats.thinking import ThinkingFormat
from sglang_lite.chat_formats.tools import ToolFormat


@dataclass(frozen=True, slots=True)
class Part:
    """What is new: of the `thinking`; of the `text`; a `call`, `text` is its name; of the `arguments` of call `index`."""

    kind: Literal["thinking", "text", "call", "arguments"]
    text: str
    index: int = -1
    call_id: str = ""


@dataclass(slots=True)
class ToolCall:
    """A call; `arguments`: JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """All parts so far, put together."""

    thinking: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    def add(self, parts: Sequence[Part]) -> None:
        """Take more parts."""
        for part in parts:
            match part.kind:
                case "thinking":
                    self.thinking += part.text
                case "text":
                    self.text += part.text
                case "call":
                    self.calls.append(ToolCall(part.call_id, part.text))
                case "arguments":
                    self.calls[part.index].arguments += part.text


class AnswerReader:
    """Reads one answer, whose text is given again and again as it grows.

    Args:
        thinking: marks of the thinking; None: it is not taken apart.
        tools: form of the calls; None: whatever looks like a call is text.
    """

    def __init__(self, thinking: ThinkingFormat | None, tools: ToolFormat | None) -> None:
        self.answer = Answer()
        self._splitter = None if thinking is None else ThinkingSplitter(thinking)
        self._calls = None if tools is None else CallReader(tools)
        self._num_chars = 0
        self._num_thoughts = 0
        self._num_answers = 0

    @property
    def has_whole_calls(self) -> bool:
        """There are calls, and the text so far does not end inside of one."""
        return self._calls is not None and self._calls.num_calls > 0 and not self._calls.is_open

    def feed(self, text: str, *, is_end: bool) -> list[Part]:
        """The new parts of a text that begins with the one given before."""
        new = text[self._num_chars :]
        self._num_chars = len(text)
        parts: list[Part] = []
        if self._splitter is not None:
            self._splitter.feed(new)
            if is_end:
                self._splitter.finish()
            thoughts = "".join(self._splitter.thinking[self._num_thoughts :])
            new = "".join(self._splitter.answer[self._num_answers :])
            self._num_thoughts, self._num_answers = len(self._splitter.thinking), len(self._splitter.answer)
            parts += [Part("thinking", thoughts)] if thoughts else []
        if self._calls is None:
            parts += [Part("text", new)] if new else []
        else:
            pieces = self._calls.feed(new)
            pieces += self._calls.finish() if is_end else []
            parts += [self._part(piece) for piece in pieces]
        self.answer.add(parts)
        return parts

    def _part(self, piece: CallPiece) -> Part:
        call_id = f"call_{secrets.token_hex(12)}" if piece.kind == "call" else ""
        return Part(piece.kind, piece.text, piece.index, call_id)
