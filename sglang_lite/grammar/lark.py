r"""The Lark subset that llguidance reads, to a grammar.

```
start: "say " (word | QUOTED) ("," " " word)~0..4 END?   // a comment
word: /[a-z]+/ | "Yes"i
QUOTED: "\"" /[^"\n]*/ "\""
END: "!" | "?" | "a".."c"
```
Rules (lower case) and terminals (upper case) are `name: options`, one to a line; a line that begins with `|` goes on with the one
before, and so do lines inside parentheses. Items are texts in double quotes (`"..."i` without regard to case), regular expressions
between slashes with the flags `i`, `s`, `u`, ranges of characters `"a".."z"`, names, groups, optional groups in brackets and special tokens
`<[id]>`; behind an item may stand `?`, `*`, `+`, `{n,m}`, `~n` or `~n..m`. Marks in front of a rule (`?`, `!`), priorities (`NAME.2:`)
and `%import common.NAME` (INT, NUMBER, WORD and the like) are read; the first two change nothing.
Terminals match like rules here, not greedily. Refused by name: `%ignore` and all other directives, templates, attributes in
brackets, aliases, `&` and `~` inside terminals, special tokens by name.
"""

from __future__ import annotations

import string

from sglang_lite.grammar.charset import CharSet
from sglang_lite.grammar.errors import GrammarError
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.rule_text import RuleText, options_of
from sglang_lite.grammar.syntax import Bytes, Chars, Grammar, Node, Special, repeat, whole

_NAME = string.ascii_letters + string.digits + "_-"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "NUMBER": r"[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?(?:[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "NEWLINE": r"(?:\r?\n)+",
}


def parse_lark(source: str) -> Grammar:
    """The grammar of `source`, beginning with the rule `start`.

    Raises:
        InvalidGrammarError: the text is malformed, a rule is missing or defined twice; the message has line and column.
        UnsupportedGrammarError: a construct that is not offered.
        GrammarTooLargeError: groups are nested too deeply.
    """
    return _Parser(source).parse()


class _Parser(RuleText):
    """Recursive descent over one text; line ends count only outside groups."""

    def __init__(self, source: str) -> None:
        super().__init__(source, "Lark")
        self._groups = 0

    def parse(self) -> Grammar:
        rules: dict[str, Node] = {}
        self.skip_blank("//")
        while not self.scanner.at_end:
            start = self.scanner.position
            if self.scanner.take("%"):
                name, node = self._directive(start)
            else:
                name, node = self._rule(start)
            if name in rules:
                raise self.invalid(f"the rule {name} is defined twice", start)
            rules[name] = node
            self.skip_blank("//", newlines=False)
            if self.scanner.peek() not in ("", "\n"):
                raise self.invalid(f"expected the end of the line, got {self.scanner.peek()!r}")
            self.skip_blank("//")
        if "start" not in rules:
            raise self.invalid("there is no rule start, where the grammar begins")
        self.check_references(rules)
        return Grammar(self.refer("start", 0), rules)

    def _rule(self, start: int) -> tuple[str, Node]:
        scanner = self.scanner
        scanner.take_while("?!")
        name = self._name()
        if not name:
            raise self.invalid("expected a rule, name: ...", start)
        if scanner.take("."):
            scanner.take_while("-" + string.digits)
        for opening, what in (("{", "templates"), ("[", "attributes in brackets")):
            if scanner.peek() == opening:
                raise self.unsupported(f"{what} of a rule are not supported")
        self.skip_blank("//", newlines=False)
        if not scanner.take(":"):
            raise self.invalid("expected a rule, name: ...", start)
        return name, self._options()

    def _directive(self, start: int) -> tuple[str, Node]:
        scanner = self.scanner
        word = scanner.take_while(string.ascii_letters)
        if word != "import":
            raise self.unsupported(f"the directive %{word} is not supported", start)
        self.skip_blank("//", newlines=False)
        at = scanner.position
        if not scanner.take("common."):
            raise self.unsupported("only %import common.NAME is supported", at)
        name = self._name()
        if name not in _COMMON:
            raise self.unsupported(f"common.{name} is not known; known are {', '.join(_COMMON)}", at)
        self.skip_blank("//", newlines=False)
        alias = name
        if scanner.take("->"):
            self.skip_blank("//", newlines=False)
            alias = self._name()
        return alias, parse_regex(_COMMON[name])

    def _options(self) -> Node:
        sequences = [self._sequence()]
        while self._next_option():
            sequences.append(self._sequence())
        return options_of(sequences)

    def _next_option(self) -> bool:
        """Consume a `|` here or at the begin of a later line."""
        before = self.scanner.position
        self.skip_blank("//")
        if self.scanner.take("|"):
            return True
        self.scanner.position = before
        return False

    def _sequence(self) -> list[Node]:
        parts: list[Node] = []
        self._blank()
        while self.scanner.peek() not in ("", "\n", "|", ")", "]"):
            start = self.scanner.position
            if self.scanner.take("->"):
                raise self.unsupported("an alias (-> name) is not supported", start)
            item = self._item()
            self._blank()
            while (bounds := self._bounds()) is not None:
                item = self.repeated(item, *bounds)
                self._blank()
            parts.append(item)
        return parts

    def _item(self) -> Node:
        scanner = self.scanner
        start = scanner.position
        if scanner.take('"'):
            return self._text(start)
        if scanner.take("/"):
            return self._regex(start)
        for opening, closing in (("(", ")"), ("[", "]")):
            if scanner.take(opening):
                self.enter_group(start)
                self._groups += 1
                node = self._options()
                self._blank()
                self._groups -= 1
                self.leave_group(closing, start)
                return node if opening == "(" else repeat(node, 0, 1)
        if scanner.take("<"):
            return self._special(start)
        name = self._name()
        if not name:
            raise self.unsupported(f"{scanner.peek()!r} begins no item that is supported", start)
        if scanner.peek() == "{":
            raise self.unsupported("templates of a rule are not supported", start)
        return self.refer(name, start)

    def _text(self, start: int) -> Node:
        scanner = self.scanner
        text = self.string('"')
        if scanner.take(".."):
            if not scanner.take('"'):
                raise self.invalid('expected a range such as "a".."z"', start)
            last = self.string('"')
            if len(text) != 1 or len(last) != 1 or last < text:
                raise self.invalid("a range needs two single characters in order", start)
            return Chars(CharSet(((ord(text), ord(last)),)))
        if scanner.take("i"):
            return parse_regex("(?i)" + "".join(f"\\U{ord(char):08x}" for char in text))
        return Bytes(text.encode())

    def _regex(self, start: int) -> Node:
        scanner = self.scanner
        pieces: list[str] = []
        while not scanner.take("/"):
            if scanner.at_end or scanner.peek() == "\n":
                raise self.invalid("the regular expression is not closed with /", start)
            char = scanner.next()
            if char == "\\" and not scanner.at_end:
                char = "/" if scanner.peek() == "/" else f"\\{scanner.peek()}"
                scanner.next()
            pieces.append(char)
        flags = scanner.take_while(string.ascii_lowercase)
        try:
            return whole(parse_regex((f"(?{flags})" if flags else "") + "".join(pieces)))
        except GrammarError as error:
            raise type(error)(f"{error}, in the text of rules", source=scanner.source, position=start) from None

    def _special(self, start: int) -> Node:
        if not self.scanner.take("["):
            raise self.unsupported("special tokens can be given by id only, <[id]>", start)
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
        if scanner.take("~"):
            scanner.take_while(" ")
            first = self.number("a number of repeats")
            return first, self.number("a number of repeats") if scanner.take("..") else first, start
        if not scanner.take("{"):
            return None
        first = 0 if scanner.peek() == "," else self.number("a number of repeats")
        last: int | None = first
        if scanner.take(","):
            last = None if scanner.peek() == "}" else self.number("a number of repeats")
        if not scanner.take("}"):
            raise self.invalid("expected a repeat such as {2}, {2,} or {2,5}", start)
        return first, last, start

    def _name(self) -> str:
        if self.scanner.peek() not in string.ascii_letters + "_" or self.scanner.at_end:
            return ""
        return self.scanner.take_while(_NAME)

    def _blank(self) -> None:
        self.skip_blank("//", newlines=self._groups > 0)
