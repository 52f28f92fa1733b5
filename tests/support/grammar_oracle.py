"""An independent recogniser of grammars: slow, exact, memoised recursive descent over bytes; shares no code with the engine."""

from __future__ import annotations

import sys

from sglang_lite.grammar.syntax import (
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Grammar,
    Node,
    Paths,
    Ref,
    Repeat,
    Without,
)

Ends = frozenset[int]
NOWHERE: Ends = frozenset()
_DEPTH = 20_000  # a few calls for each item of a list, since rules go on to the next item by reference


def recognises(grammar: Grammar, text: str | bytes) -> bool:
    """Whether the whole text is in the grammar. Left recursion is not offered."""
    data = text.encode() if isinstance(text, str) else text
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEPTH))
    try:
        return len(data) in _Recogniser(grammar, data).ends(grammar.start, 0)
    finally:
        sys.setrecursionlimit(limit)


class _Recogniser:
    """Where a node may end that begins at a position of one text."""

    def __init__(self, grammar: Grammar, data: bytes) -> None:
        self.grammar = grammar
        self.data = data
        self.known: dict[tuple[int, int], Ends] = {}

    def ends(self, node: Node, at: int) -> Ends:
        # Nodes live as long as the grammar does, so their identity is a key.
        key = (id(node), at)
        if key not in self.known:
            self.known[key] = self.find(node, at)
        return self.known[key]

    def find(self, node: Node, at: int) -> Ends:
        data = self.data
        match node:
            case Bytes(literal):
                return frozenset([at + len(literal)]) if data.startswith(literal, at) else NOWHERE
            case Choices(texts):
                return frozenset(at + len(text) for text in texts if data.startswith(text, at))
            case Chars(charset):
                size = _size(data, at)
                return frozenset([at + size]) if size and ord(data[at : at + size].decode()) in charset else NOWHERE
            case Concat(parts):
                here: Ends = frozenset([at])
                for part in parts:
                    here = frozenset(end for begin in here for end in self.ends(part, begin))
                return here
            case Alternate(options):
                return frozenset(end for option in options for end in self.ends(option, at))
            case Paths(size, arrows):
                return self.on_paths(size, arrows, at)
            case Repeat(item, low, high):
                return self.repeated(item, low, high, at)
            case Ref(name):
                return self.ends(self.grammar.rules[name], at)
            case Both(left, right):
                return self.ends(left, at) & self.ends(right, at)
            case Without(left, right):
                return self.ends(left, at) - self.ends(right, at)
            case _:
                raise AssertionError(f"the oracle does not know {type(node).__name__}")

    def on_paths(self, size: int, arrows: tuple[tuple[int, Node, int], ...], at: int) -> Ends:
        seen = {(0, at)}
        waiting = [(0, at)]
        while waiting:
            state, here = waiting.pop()
            for begin, node, target in arrows:
                for end in self.ends(node, here) if begin == state else NOWHERE:
                    if (target, end) not in seen:
                        seen.add((target, end))
                        waiting.append((target, end))
        return frozenset(end for state, end in seen if state == size - 1)

    def repeated(self, item: Node, low: int, high: int | None, at: int) -> Ends:
        here: Ends = frozenset([at])
        found: set[int] = set(here) if low == 0 else set()
        seen: set[int] = set(here)
        copies = 0
        while here and (high is None or copies < high):
            here = frozenset(end for begin in here for end in self.ends(item, begin))
            copies += 1
            if copies >= low:
                found |= here
                here = here - seen
                seen |= here
        return frozenset(found)


def _size(data: bytes, at: int) -> int:
    """Bytes of the character at `at`; 0 at the end. The text is well-formed UTF-8."""
    if at >= len(data):
        return 0
    lead = data[at]
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
