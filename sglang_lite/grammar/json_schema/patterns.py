"""Regular expressions of schemas as languages of characters: search semantics, position tests resolved; knows no JSON."""

from __future__ import annotations

from functools import lru_cache

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, union
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import (
    EMPTY,
    NEVER,
    Alternate,
    Concat,
    Node,
    Repeat,
    TextEdge,
    alternate,
    concat,
    may_be_empty,
    repeat,
)

_MAX_VARIANTS = 64


@lru_cache(maxsize=1024)
def pattern_language(pattern: str) -> Node:
    """All texts in which `pattern` is found somewhere, free of position tests.

    Raises:
        InvalidGrammarError: the pattern is malformed.
        UnsupportedGrammarError: it uses a construct that is not offered.
    """
    node = parse_regex(pattern, dialect="ecma")
    return union(_searched(variant) for variant in _variants(node, pattern))


def _variants(node: Node, pattern: str) -> list[tuple[Node, ...]]:
    """`node` as alternative sequences in which position tests stand only at the top."""
    if not _has_edge(node):
        return [(node,)]
    match node:
        case Concat(parts):
            rows: list[tuple[Node, ...]] = [()]
            for part in parts:
                rows = [row + more for row in rows for more in _variants(part, pattern)]
                if len(rows) > _MAX_VARIANTS:
                    raise UnsupportedGrammarError("the pattern has too many ways past its anchors", source=pattern)
            return rows
        case Alternate(options):
            plain = [option for option in options if not _has_edge(option)]
            rows = [row for option in options if _has_edge(option) for row in _variants(option, pattern)]
            return rows + ([(alternate(plain),)] if plain else [])
        case Repeat(item, low, high):
            # A copy of an item that cannot be empty moves on from the begin (or cannot go on from the end): two copies with a
            # test never both match unless they are empty, so one copy between copies without effect is not expressible here.
            if high == 1:
                return ([()] if low == 0 else []) + _variants(item, pattern)
            raise UnsupportedGrammarError("an anchor inside a repeated group is not supported", source=pattern)
        case _:
            return [(node,)]


def _searched(parts: tuple[Node, ...]) -> Node:
    """The texts in which the sequence is found; each position test in it is replaced by what it asks of its neighbours."""
    begins = [at for at, part in enumerate(parts) if part == TextEdge(end=False)]
    ends = [at for at, part in enumerate(parts) if part == TextEdge(end=True)]
    body = [EMPTY if isinstance(part, TextEdge) else part for part in parts]
    empty_head = max(begins, default=0)
    empty_tail = min(ends, default=len(parts))
    for at, part in enumerate(body):
        if at < empty_head or at >= empty_tail:
            if not may_be_empty(part):
                return NEVER
            body[at] = EMPTY
    return concat([EMPTY if begins else ANY_TEXT, *body, EMPTY if ends else ANY_TEXT])


def _has_edge(node: Node) -> bool:
    match node:
        case TextEdge():
            return True
        case Concat(parts):
            return any(map(_has_edge, parts))
        case Alternate(options):
            return any(map(_has_edge, options))
        case Repeat(item, _, _):
            return _has_edge(item)
        case _:
            return False


def length_language(low: int, high: int | None) -> Node:
    """All texts of `low` to `high` characters."""
    return repeat(ANY_TEXT.item, low, high)
