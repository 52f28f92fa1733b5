"""Apart as it comes: what a model thinks and what it answers."""

from __future__ import annotations

from typing import Literal

from sglang_lite.chat_formats.thinking import ThinkingFormat


class ThinkingSplitter:
    """Splits a text that comes in pieces as `split_thinking` splits the whole.

    `thinking` and `answer` only grow, and end as the halves of the whole text once `finish` was called: what may turn
    out to be a mark, or white space at an end, is kept back until then.
    """

    def __init__(self, thinking_format: ThinkingFormat) -> None:
        self.thinking: list[str] = []
        self.answer: list[str] = []
        self._format = thinking_format
        self._place: Literal["start", "thinking", "answer", "plain"] = "start"
        self._kept = ""

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        self._kept += piece
        if self._place == "start":
            self._begin(is_whole=False)
        if self._place == "thinking":
            self._think()
        if self._place == "answer":
            self._kept = _grow(self.answer, self._kept, len(self._kept))
        elif self._place == "plain":
            self.answer.append(self._kept)
            self._kept = ""

    def finish(self) -> None:
        """The text ends here."""
        if self._place == "start":
            self._begin(is_whole=True)
            self.feed("")
        if self._place == "thinking":
            _grow(self.thinking, self._kept, len(self._kept))
        self._kept = ""

    def _begin(self, *, is_whole: bool) -> None:
        begin = self._format.marks[0]
        stripped = self._kept.lstrip()
        if stripped.startswith(begin):
            self._place, self._kept = "thinking", stripped[len(begin) :]
        elif is_whole or not begin.startswith(stripped):
            self._place = "thinking" if self._format.starts_inside else "plain"

    def _think(self) -> None:
        end = self._format.marks[1]
        at = self._kept.find(end)
        if at >= 0:
            _grow(self.thinking, self._kept[:at], at)
            self._place, self._kept = "answer", self._kept[at + len(end) :]
            return
        open_mark = next(n for n in range(min(len(end), len(self._kept)), -1, -1) if self._kept.endswith(end[:n]))
        self._kept = _grow(self.thinking, self._kept, len(self._kept) - open_mark)


def _grow(half: list[str], text: str, limit: int) -> str:
    """Add `text` up to `limit`, without white space at the very beginning and the end; returns what was kept back."""
    sure = text[:limit].rstrip()
    new = sure if half else sure.lstrip()
    if new:
        half.append(new)
    return text[len(sure) :] if half else text[:limit].lstrip() + text[limit:]
