"""What the text formats of rules have in common: layout, names, strings, repeats, and errors with line and column."""

from __future__ import annotations

import string
from collections.abc import Mapping

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.scanner import Scanner
from sglang_lite.grammar.syntax import Node, Ref, alternate, concat, repeat

MAX_NESTING = 60  # groups in groups; keeps the recursion of parser and builder far from Python's limit
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


class RuleText:
    """A scanner over a text of rules; `references` remembers where each rule is first referred to."""

    def __init__(self, source: str, what: str) -> None:
        if not isinstance(source, str):
            raise TypeError(f"compiling {what}: expected a str, got {type(source).__name__}")
        self.scanner = Scanner(source)
        self.references: dict[str, int] = {}
        self._what = what
        self._depth = 0

    def invalid(self, message: str, position: int | None = None) -> InvalidGrammarError:
        """The error of a malformed text, with line and column of `position` (default: here)."""
        return self.scanner.invalid(self._placed(message, position), position)

    def unsupported(self, message: str, position: int | None = None) -> UnsupportedGrammarError:
        """The error of a construct that is not offered, with line and column of `position` (default: here)."""
        return self.scanner.unsupported(self._placed(message, position), position)

    def skip_blank(self, comment: str, *, newlines: bool = True) -> None:
        """Skip white space and comments from `comment` to the end of the line; with `newlines` false, stay on the line."""
        scanner = self.scanner
        while True:
            scanner.take_while(" \t\r\n" if newlines else " \t\r")
            if not scanner.take(comment):
                return
            while not scanner.at_end and scanner.peek() != "\n":
                scanner.next()

    def refer(self, name: str, position: int) -> Node:
        """A reference, remembered with its place."""
        self.references.setdefault(name, position)
        return Ref(name)

    def check_references(self, rules: Mapping[str, Node]) -> None:
        """Raise for a reference that names none of `rules`."""
        for name, position in self.references.items():
            if name not in rules:
                raise self.invalid(f"the rule {name} is not defined", position)

    def enter_group(self, position: int) -> None:
        """Count a group that opens at `position`."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise GrammarTooLargeError(
                self._placed(f"groups are nested deeper than {MAX_NESTING}", position),
                source=self.scanner.source,
                position=position,
            )

    def leave_group(self, closing: str, position: int) -> None:
        """Consume the end of the group that opened at `position`."""
        self._depth -= 1
        if not self.scanner.take(closing):
            raise self.invalid(f"the group is not closed with {closing}", position)

    def number(self, expected: str) -> int:
        """A decimal number here."""
        at = self.scanner.position
        digits = self.scanner.take_while(string.digits)
        if not digits or len(digits) > 9:
            raise self.invalid(f"expected {expected}", at)
        return int(digits)

    def repeated(self, item: Node, low: int, high: int | None, position: int) -> Node:
        """`low` to `high` copies of `item`."""
        if high is not None and high < low:
            raise self.invalid(f"the repeat asks for at least {low} and at most {high}", position)
        return repeat(item, low, high)

    def string(self, quote: str) -> str:
        """The text up to the closing `quote`; the opening one is consumed. Surrogate pairs are joined, lone surrogates kept."""
        start = self.scanner.position - 1
        pieces: list[str] = []
        while not self.scanner.take(quote):
            if self.scanner.at_end or self.scanner.peek() == "\n":
                raise self.invalid(f"the text is not closed with {quote}", start)
            pieces.append(self.character())
        text = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.invalid("a lone surrogate is not text", start) from None
        return text

    def character(self) -> str:
        """One character, escaped or not."""
        scanner = self.scanner
        start = scanner.position
        char = scanner.next()
        if char != "\\":
            return char
        if scanner.at_end:
            raise self.invalid("the text ends in a backslash", start)
        kind = scanner.next()
        if kind in _HEX_DIGITS:
            return self._hexadecimal(kind, start)
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind in string.ascii_letters + string.digits or not kind.isprintable():
            raise self.invalid(f"the escape \\{kind} is unknown", start)
        return kind

    def _hexadecimal(self, kind: str, start: int) -> str:
        scanner = self.scanner
        braced = kind == "u" and scanner.take("{")
        width = 8 if braced else _HEX_DIGITS[kind]
        digits = scanner.take_while(string.hexdigits, width)
        if (not braced and len(digits) < width) or not digits or (braced and not scanner.take("}")):
            raise self.invalid(f"the escape \\{kind} needs {width} hexadecimal digits", start)
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise self.invalid("a code point is beyond U+10FFFF", start)
        return chr(code)

    def _placed(self, message: str, position: int | None) -> str:
        at = self.scanner.position if position is None else position
        before = self.scanner.source[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
        return f"compiling {self._what}, line {line}, column {column}: {message}"


def options_of(sequences: list[list[Node]]) -> Node:
    """Any of `sequences`."""
    return alternate([concat(parts) for parts in sequences])
