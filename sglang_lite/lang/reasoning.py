"""Apart: what a model thinks and what it answers, whole or as it comes; the marks of the model families."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from sglang_lite.chat_formats.splitting import ThinkingSplitter
from sglang_lite.chat_formats.thinking import THINKING_FORMATS, ThinkingFormat
from sglang_lite.errors import UnsupportedError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.request_tree import OpDone, split_thinking

REASONING_SUFFIX = "_reasoning_content"
"""What is added to a gen's name for its thinking."""

Half = Literal["answer", "thinking"]


FORMATS = THINKING_FORMATS


def thinking_format(model_type: str) -> ThinkingFormat:
    """The format of a model type; case does not matter.

    Raises:
        UnsupportedError: there is none of that name.
    """
    found = FORMATS.get(model_type.lower())
    if found is None:
        raise UnsupportedError(
            f"separating the reasoning: model_type={model_type!r} is not supported, expected one of {sorted(FORMATS)}"
        )
    return found


class ThinkingPart:
    """One half of a gen's text, to be read like an op as it comes (see `OpFuture`)."""

    def __init__(self, future: OpFuture, thinking_format: ThinkingFormat, half: Half) -> None:
        self._future = future
        self._format = thinking_format
        self._half: Half = half
        self._splitter = ThinkingSplitter(thinking_format)
        self._num_fed = 0

    def of(self, text: str) -> str:
        """The part's half of a whole text."""
        halves = split_thinking(text, self._format.marks, starts_inside=self._format.starts_inside)
        return halves[0] if self._half == "thinking" else halves[1]

    @property
    def pieces(self) -> list[str]:
        """The pieces so far. The caller holds the signal's lock."""
        new, self._num_fed = self._future.pieces[self._num_fed :], len(self._future.pieces)
        for piece in new:
            self._splitter.feed(piece)
        return self._splitter.thinking if self._half == "thinking" else self._splitter.answer

    @property
    def done(self) -> OpDone | None:
        """The op's result with this half as its text."""
        done = self._future.done
        return None if done is None else replace(done, text=self.of(done.text))

    @property
    def error(self) -> Exception | None:
        """The op's error."""
        return self._future.error


class ThinkingValue:
    """The value of one half of a gen: a text, or a list of them where the gen has `n > 1`."""

    def __init__(self, future: OpFuture, thinking_format: ThinkingFormat, half: Half) -> None:
        self.future = future
        self.format = thinking_format
        self.half: Half = half

    def over(self, future: OpFuture) -> ThinkingValue:
        """The same of another op."""
        return ThinkingValue(future, self.format, self.half)

    def part(self) -> ThinkingPart:
        """A reader of its text as it comes."""
        return ThinkingPart(self.future, self.format, self.half)

    def get(self) -> Any:
        """Wait for the value; the answer of a gen with a type is what it means."""
        attempts = self.future.attempts
        if self.half == "answer" and attempts is not None and attempts.typed is not None and not attempts.typed.is_free:
            self.future.result()
            return attempts.value
        return self.text()

    def text(self) -> Any:
        """Wait for the text."""
        value, part = self.future.result().value, self.part()
        return [part.of(text) for text in value] if isinstance(value, list) else part.of(value or "")

    def meta(self) -> Any:
        """The op's `meta_info`."""
        return dict(self.future.result().meta)

    def ops(self) -> list[OpFuture]:
        """The one op."""
        return [self.future]
