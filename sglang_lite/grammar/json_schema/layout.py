"""The white space of JSON texts: separators and brackets in the chosen layout; knows no schema."""

from __future__ import annotations

from sglang_lite.grammar.charset import CharSet
from sglang_lite.grammar.json_schema.options import Whitespace
from sglang_lite.grammar.syntax import EMPTY, Bytes, Chars, Node, concat, repeat

_SPACES = Chars(CharSet.of([(0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)]))


class Layout:
    """Nodes for what stands between values. `gap` is the free white space, EMPTY in a fixed layout."""

    def __init__(self, whitespace: Whitespace, max_whitespace: int) -> None:
        self.gap: Node = repeat(_SPACES, 0, max_whitespace) if whitespace == "any" else EMPTY
        behind = Bytes(b" ") if whitespace == "spaced" else self.gap
        self.comma = concat([self.gap, Bytes(b","), behind])
        self.colon = concat([self.gap, Bytes(b":"), behind])

    def enclosed(self, begin: bytes, inner: Node, end: bytes) -> Node:
        """`inner` in brackets."""
        if inner == EMPTY:
            return concat([Bytes(begin), self.gap, Bytes(end)])
        return concat([Bytes(begin), self.gap, inner, self.gap, Bytes(end)])
