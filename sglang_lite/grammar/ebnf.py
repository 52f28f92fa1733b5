r"""GBNF, the EBNF of llama.cpp and xgrammar, to a grammar.

```
root   ::= "Answer: " word ("," ws word){0,4} "."   # a comment
word   ::= [a-zA-Z]+ | "\"" [^"\\\n]* "\""
ws     ::= [ \t]?
```
Rules are `name ::= options`; a rule goes on until the next name with `::=`, over line ends or not. Items are texts in double quotes,
character classes, `.` (any character), names, groups in parentheses and special tokens `<[id]>`; behind an item may stand `?`, `*`,
`+`, `{n}`, `{n,}`, `{,m}` or `{n,m}`. Escapes are those of JSON and `\x..`, `\U........`, `\[`, `\]`, `\-`.
A rule that begins with itself (`a ::= a "x" | "y"`) is made a loop; longer circles of this kind are refused by name.
Refused by name: look-ahead `(= ...)`, functions such as `TagDispatch(...)`, special tokens by name and negated ones.
"""

from __future__ import annotations

import string

from sglang_lite.grammar.charset import ANY, CharSet
from sglang_lite.grammar.rule_text import RuleText, options_of
from sglang_lite.grammar.syntax import Bytes, Chars, Grammar, Node, Special

_NAME_START = string.ascii_letters + "_"
_NAME = string.ascii_letters + string.digits + "-_."


def parse_ebnf(source: str, *, root: str = "root") -> Grammar:
    """The grammar of `source`, beginning with the rule `root`.

    Raises:
        InvalidGrammarError: the text is malformed, a rule is missing or defined twice; the message has line and column.
        UnsupportedGrammarError: a construct that is not offered.
        GrammarTooLargeError: groups are nested too deeply.
    """
    return _Parser(source).parse(root)


class _Parser(RuleText):
    """Recursive descent over one text."""

    def __init__(self, source: str) -> None:
        super().__init__(source, "EBNF")

    def parse(self, root: str) -> Grammar:
        rules: dict[str, Node] = {}
        self._blank()
        while not self.scanner.at_end:
            start = self.scanner.position
            name = self._name()
            self._blank()
            if not name or not self.scanner.take("::="):
                raise self.invalid("expected a rule, name ::= ...", start)
            if name in rules:
                raise self.invalid(f"the rule {name} is defined twice", start)
            rules[name] = self._options()
            if self.scanner.peek() == ")":
                raise self.invalid("a closing parenthesis has no opening one")
        if root not in rules:
            raise self.invalid(f"there is no rule {root}, where the grammar begins")
        self.check_references(rules)
        return Grammar(self.refer(root, 0), rules)

    def _options(self) -> Node:
        sequences = [self._sequence()]
        while self.scanner.take("|"):
            sequences.append(self._sequence())
        return options_of(sequences)

    def _sequence(self) -> list[Node]:
        parts: list[Node] = []
        self._blank()
        while self.scanner.peek() not in ("", "|", ")") and not self._at_rule():
            item = self._item()
            self._blank()
            while (bounds := self._bounds()) is not None:
                item = self.repeated(item, *bounds)
                self._blank()
            parts.append(item)
        return parts

    def _at_rule(self) -> bool:
        """Whether the next rule begins here; nothing is consumed."""
        start = self.scanner.position
        found = bool(self._name())
        self._blank()
        found = found and self.scanner.take("::=")
        self.scanner.position = start
        return found

    def _item(self) -> Node:
        scanner = self.scanner
        start = scanner.position
        if scanner.take('"'):
            return Bytes(self.string('"').encode())
        if scanner.take("["):
            return Chars(self._class(start))
        if scanner.take("."):
            return Chars(ANY)
        if scanner.take("("):
            if scanner.take("="):
                raise self.unsupported("look-ahead (= ...) is not supported", start)
            self.enter_group(start)
            node = self._options()
            self.leave_group(")", start)
            return node
        if scanner.peek() in ("<", "!"):
            return self._special(start)
        name = self._name()
        if not name:
            raise self.invalid(f"expected a text, a class, a name or a group, got {scanner.peek()!r}", start)
        if scanner.peek() == "(":
            raise self.unsupported(f"the function {name}(...) is not supported", start)
        return self.refer(name, start)

    def _special(self, start: int) -> Node:
        if not self.scanner.take("<["):
            raise self.unsupported("special tokens can be given by id, <[id]>, and not negated", start)
        token_id = self.number("a token id")
        if not self.scanner.take("]>"):
            raise self.invalid("the special token is not closed with ]>", start)
        return Special(token_id)

    def _bounds(self) -> tuple[int, int | None, int] | None:
        """Bounds of a repeat and its place; None (nothing consumed) if there is none here."""
        scanner = self.scanner
        start = scanner.position
        for sign, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if scanner.take(sign):
                return low, high, start
        if not scanner.take("{"):
            return None
        self._blank()
        first = None if scanner.peek() == "," else self.number("a number of repeats")
        self._blank()
        last = first
        if scanner.take(","):
            self._blank()
            last = None if scanner.peek() == "}" else self.number("a number of repeats")
            self._blank()
        if not scanner.take("}") or (first is None and last is None):
            raise self.invalid("expected a repeat such as {2}, {2,} or {2,5}", start)
        return first or 0, last, start

    def _class(self, start: int) -> CharSet:
        scanner = self.scanner
        negated = scanner.take("^")
        ranges: list[tuple[int, int]] = []
        while not scanner.take("]"):
            low = self._member(start)
            high = low
            if scanner.peek() == "-" and not scanner.source.startswith("-]", scanner.position):
                scanner.next()
                high = self._member(start)
            if high < low:
                raise self.invalid("a range of characters is the wrong way round")
            ranges.append((low, high))
        if not ranges:
            raise self.invalid("a class without characters", start)
        found = CharSet.of(ranges)
        return found.negate() if negated else found

    def _member(self, start: int) -> int:
        scanner = self.scanner
        if scanner.at_end or scanner.peek() == "\n":
            raise self.invalid("the class is not closed with ]", start)
        high = ord(self.character())
        if 0xD800 <= high < 0xDC00 and scanner.source.startswith("\\u", scanner.position):
            low = ord(self.character())
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) if 0xDC00 <= low < 0xE000 else high
        return high

    def _name(self) -> str:
        if self.scanner.peek() not in _NAME_START or self.scanner.at_end:
            return ""
        return self.scanner.take_while(_NAME)

    def _blank(self) -> None:
        self.skip_blank("#")
