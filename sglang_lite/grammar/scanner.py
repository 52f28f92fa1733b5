"""A cursor over a grammar's source text that words errors with their place; knows no syntax."""

from __future__ import annotations

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError


class Scanner:
    """Reads `source` from left to right; `position` is the index of the next character."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0

    @property
    def at_end(self) -> bool:
        """Whether all characters are read."""
        return self.position >= len(self.source)

    def peek(self) -> str:
        """The next character, or "" at the end; nothing is consumed."""
        return self.source[self.position : self.position + 1]

    def take(self, expected: str) -> bool:
        """Consume `expected` if it comes next; says whether it did."""
        if not self.source.startswith(expected, self.position):
            return False
        self.position += len(expected)
        return True

    def next(self) -> str:
        """Consume and return the next character; the caller has checked that there is one."""
        char = self.source[self.position]
        self.position += 1
        return char

    def take_while(self, allowed: str, limit: int | None = None) -> str:
        """Consume and return the longest run of characters of `allowed`, at most `limit` of them."""
        begin = self.position
        end = len(self.source) if limit is None else min(len(self.source), begin + limit)
        while self.position < end and self.source[self.position] in allowed:
            self.position += 1
        return self.source[begin : self.position]

    def take_until(self, stop: str) -> str | None:
        """Consume up to and including `stop` and return what came before it; None (nothing consumed) if it never comes."""
        at = self.source.find(stop, self.position)
        if at < 0:
            return None
        text = self.source[self.position : at]
        self.position = at + len(stop)
        return text

    def invalid(self, message: str, position: int | None = None) -> InvalidGrammarError:
        """The error of a malformed source at `position` (default: here)."""
        return InvalidGrammarError(message, source=self.source, position=self._place(position))

    def unsupported(self, message: str, position: int | None = None) -> UnsupportedGrammarError:
        """The error of a construct that is not offered, at `position` (default: here)."""
        return UnsupportedGrammarError(message, source=self.source, position=self._place(position))

    def _place(self, position: int | None) -> int:
        return self.position if position is None else position
