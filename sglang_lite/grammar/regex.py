r"""Regular expressions (the common subset of Python's `re` and ECMA-262) to the syntax of `syntax.py`.

A pattern means the set of texts that `re.fullmatch` accepts:

- `\d`, `\w`, `\s` and their complements are Unicode, exactly as in `re` on `str`; `(?a)` or `(?a:...)` makes them ASCII.
- `.` is any character but the line feed; `(?s)` includes it. `(?i)` folds case as `re.IGNORECASE` does. Flags may be scoped
  (`(?i:...)`, `(?-i:...)`).
- `^`, `\A`, `$` and `\Z` are the ends of the whole text, wherever they stand. `$` is strict: it is not also true before a last line feed.
- Groups, named or not, only group; greedy and lazy quantifiers match the same texts.
- Beyond `re`: `\u{...}`, surrogate pairs, `(?<name>...)`, `\p{Lu}` with general categories.
- `dialect="ecma"` reads a pattern as ECMA-262 does where the two differ: `\d` and `\w` are ASCII, `\s` is ECMA's white space, `.` leaves
  out all four line terminators, `[]` is nothing and `[^]` anything, `\cX` is a control, and a hyphen beside a shorthand is itself.
- Refused by name: look-around, back-references, conditionals, atomic groups, possessive quantifiers, word boundaries,
  the flags `m`, `x`, `L`.

Text is what UTF-8 can spell: a lone surrogate matches nothing.
"""

from __future__ import annotations

import string
from dataclasses import replace
from typing import Literal

from sglang_lite.grammar.charset import ANY, CharSet
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.regex_classes import Flags, apply_case, read_class, read_escape
from sglang_lite.grammar.scanner import Scanner
from sglang_lite.grammar.syntax import Bytes, Chars, Node, TextEdge, alternate, concat, repeat

MAX_NESTING = 100  # groups in groups; keeps the recursion of parser and builder far from Python's limit
_NOT_LINE_FEED = CharSet.single(0x0A).negate()
_NOT_LINE_END = CharSet.of([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]).negate()
_FLAG_FIELDS = {"i": "ignore_case", "s": "dot_all", "a": "ascii_only"}
_REFUSED_FLAGS = {"m": "multi-line anchors", "x": "verbose layout", "L": "locale classes"}
_REFUSED_GROUPS = (
    ("?=", "look-ahead"),
    ("?!", "negative look-ahead"),
    ("?<=", "look-behind"),
    ("?<!", "negative look-behind"),
    ("?>", "the atomic group"),
    ("?P=", "the back-reference"),
    ("?(", "the conditional group"),
)


def parse_regex(pattern: str, *, dialect: Literal["python", "ecma"] = "python") -> Node:
    """The syntax of `pattern`, to be matched against a whole text.

    Raises:
        InvalidGrammarError: the pattern is malformed; the message names the place.
        UnsupportedGrammarError: the pattern uses a construct that is not offered.
        GrammarTooLargeError: groups are nested deeper than `MAX_NESTING`.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"compiling a regular expression: expected a str, got {type(pattern).__name__}")
    return _Parser(pattern).parse(Flags(ascii_only=dialect == "ecma", ecma=dialect == "ecma"))


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self.scanner = Scanner(pattern)
        self.depth = 0

    def parse(self, flags: Flags) -> Node:
        while (ahead := self._global_flags(flags)) is not None:
            flags = ahead
        node = self._alternation(flags)
        if not self.scanner.at_end:
            raise self.scanner.invalid("a closing parenthesis has no opening one")
        return node

    def _global_flags(self, flags: Flags) -> Flags | None:
        """The flags of a `(?i)` here at the begin of the pattern; None (nothing consumed) if there is none."""
        start = self.scanner.position
        if self.scanner.take("(?"):
            letters = self.scanner.take_while(string.ascii_letters)
            if letters and self.scanner.take(")"):
                return self._changed(flags, letters, "", start)
        self.scanner.position = start
        return None

    def _alternation(self, flags: Flags) -> Node:
        options = [self._sequence(flags)]
        while self.scanner.take("|"):
            options.append(self._sequence(flags))
        return alternate(options)

    def _sequence(self, flags: Flags) -> Node:
        parts: list[Node] = []
        while self.scanner.peek() not in ("", "|", ")"):
            start = self.scanner.position
            item = self._item(flags)
            if item is not None:
                parts.append(self._quantified(item, start))
        return concat(parts)

    def _item(self, flags: Flags) -> Node | None:
        """One unit that a quantifier may follow; None for a comment."""
        scanner = self.scanner
        start = scanner.position
        char = scanner.next()
        if char == "(":
            return self._group(flags, start)
        if char == "[":
            return Chars(read_class(scanner, flags))
        if char == ".":
            return Chars(ANY if flags.dot_all else _NOT_LINE_END if flags.ecma else _NOT_LINE_FEED)
        if char in "^$":
            return TextEdge(end=char == "$")
        if char == "\\":
            if scanner.peek() in ("A", "Z"):
                return TextEdge(end=scanner.next() == "Z")
            found = read_escape(scanner, flags, in_class=False)
            return Chars(found) if isinstance(found, CharSet) else _literal(found, flags)
        if char in "*+?":
            raise scanner.invalid(f"the quantifier {char} has nothing to repeat", start)
        if char == "{":
            after, scanner.position = scanner.position, start
            if self._bounds() is not None:
                spelled = scanner.source[start : scanner.position]
                raise scanner.invalid(f"the quantifier {spelled} has nothing to repeat", start)
            scanner.position = after
        return _literal(ord(char), flags)

    def _quantified(self, item: Node, start: int) -> Node:
        scanner = self.scanner
        at = scanner.position
        bounds = self._bounds()
        if bounds is None:
            return item
        spelled = scanner.source[at : scanner.position]
        if isinstance(item, TextEdge) and scanner.source[start] != "(":
            raise scanner.invalid(f"the quantifier {spelled} has nothing to repeat", at)
        if scanner.take("+"):
            raise scanner.unsupported(f"the possessive quantifier {spelled}+ is not supported", at)
        scanner.take("?")
        again = scanner.position
        if self._bounds() is not None:
            raise scanner.invalid("a quantifier follows a quantifier", again)
        return repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The bounds of a quantifier here; None (nothing consumed) if there is none. `{` that begins no quantifier is a literal."""
        scanner = self.scanner
        for sign, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if scanner.take(sign):
                return low, high
        start = scanner.position
        if not scanner.take("{") or scanner.peek() == "}":
            scanner.position = start
            return None
        first = scanner.take_while(string.digits)
        second = scanner.take_while(string.digits) if scanner.take(",") else first
        if not scanner.take("}"):
            scanner.position = start
            return None
        if len(first) > 9 or len(second) > 9:
            raise GrammarTooLargeError(
                "a bound of a quantifier has more than 9 digits", source=scanner.source, position=start
            )
        low, high = int(first or 0), int(second) if second else None
        if high is not None and high < low:
            raise scanner.invalid(f"the quantifier asks for at least {low} and at most {high}", start)
        return low, high

    def _group(self, flags: Flags, start: int) -> Node | None:
        scanner = self.scanner
        for spelled, name in _REFUSED_GROUPS:
            if scanner.take(spelled):
                raise scanner.unsupported(f"{name} ({spelled}...) is not supported", start)
        if scanner.take("?#"):
            if scanner.take_until(")") is None:
                raise scanner.invalid("the comment is not closed with )", start)
            return None
        if scanner.take("?P<") or scanner.take("?<"):
            name = scanner.take_until(">")
            if name is None or not name.isidentifier():
                raise scanner.invalid(f"reading a named group: expected a name and >, got {name!r}", start)
        elif scanner.take("?") and not scanner.take(":"):
            flags = self._scoped_flags(flags, start)
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise GrammarTooLargeError(
                f"groups are nested deeper than {MAX_NESTING}", source=scanner.source, position=start
            )
        node = self._alternation(flags)
        self.depth -= 1
        if not scanner.take(")"):
            raise scanner.invalid("the group is not closed with )", start)
        return node

    def _scoped_flags(self, flags: Flags, start: int) -> Flags:
        scanner = self.scanner
        on = scanner.take_while(string.ascii_letters)
        off = scanner.take_while(string.ascii_letters) if scanner.take("-") else ""
        if on and not off and scanner.peek() == ")":
            raise scanner.invalid("global flags stand at the begin of the pattern only", start)
        if not (on or off) or not scanner.take(":"):
            raise scanner.invalid("an unknown kind of group", start)
        return self._changed(flags, on, off, start)

    def _changed(self, flags: Flags, on: str, off: str, start: int) -> Flags:
        for letter in on + off:
            if letter in _REFUSED_FLAGS:
                raise self.scanner.unsupported(f"the flag {letter} ({_REFUSED_FLAGS[letter]}) is not supported", start)
            if letter not in _FLAG_FIELDS and letter != "u":
                raise self.scanner.invalid(f"the flag {letter} is unknown", start)
        if set(on) & set(off) or set(off) & set("au") or set("au") <= set(on):
            raise self.scanner.invalid(f"the flags {on}-{off} contradict each other", start)
        if "u" in on:
            flags = replace(flags, ascii_only=False)
        switched = {_FLAG_FIELDS[letter]: letter in on for letter in on + off if letter != "u"}
        return replace(flags, **switched)


def _literal(code: int, flags: Flags) -> Node:
    charset = apply_case(CharSet.single(code), flags)
    if len(charset) > 1 or 0xD800 <= code <= 0xDFFF:
        return Chars(charset)
    return Bytes(chr(code).encode())
