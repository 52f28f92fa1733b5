"""Turns the bytes of a generation into text piece by piece; knows no vocabulary rules and no stop strings."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence


class TextStream:
    """The visible text of one generation, shown in order, never half a character and never backwards.

    The joined pieces equal `bytes.decode("utf-8", "replace")` of the bytes shown. Offsets are byte offsets from the start
    of the generation; whoever matches stop strings says by them how far the text is safe to show. Prompt bytes are never
    fed, so they cannot leak.

    Args:
        visible_bytes: bytes of every token id (`Tokenizer.visible_bytes`); only `feed` reads it.
    """

    __slots__ = ("_base", "_pending", "_visible")

    def __init__(self, visible_bytes: Sequence[bytes]) -> None:
        self._visible = visible_bytes
        self._pending = bytearray()  # bytes fed but not shown
        self._base = 0  # byte offset of the first pending byte

    @property
    def shown(self) -> int:
        """Bytes that have been shown as text."""
        return self._base

    @property
    def total(self) -> int:
        """Bytes that have been fed."""
        return self._base + len(self._pending)

    def feed(self, ids: Iterable[int]) -> None:
        """Append the visible bytes of tokens."""
        visible = self._visible
        for token_id in ids:
            self._pending += visible[token_id]

    def push(self, new_bytes: bytes) -> None:
        """Append bytes."""
        self._pending += new_bytes

    def text_upto(self, byte_end: int) -> str:
        """The new text up to `byte_end`, without the character that is still incomplete there; "" if nothing is new."""
        return self._show(byte_end, final=False)

    def finish(self, byte_end: int | None = None) -> str:
        """The rest of the text up to `byte_end` (None: all); incomplete bytes become U+FFFD. Bytes after it are dropped."""
        text = self._show(self.total if byte_end is None else byte_end, final=True)
        self._pending.clear()
        return text

    def _show(self, byte_end: int, *, final: bool) -> str:
        assert byte_end <= self.total, f"text up to byte {byte_end} was asked for, but only {self.total} were fed"
        if byte_end <= self._base:
            return ""
        text, used = codecs.utf_8_decode(self._pending[: byte_end - self._base], "replace", final)
        del self._pending[:used]
        self._base += used
        return text
