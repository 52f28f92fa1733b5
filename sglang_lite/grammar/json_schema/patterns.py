"""Regular expressions of schemas as languages of characters: search semantics, position tests resolved; knows no JSON."""

from __future__ import annotations

from functools import lru_cache

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, difference, intersection, union
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
)

_MAX_VARIANTS = 64


@lru_cache(maxsize=1024)
def pattern_language(pattern: str) -> Node:
    """All texts in which `pattern` is found somewhere, free of position tests.

    Look-ahead is understood where it stands behind a leading `^`, which is where schemas have it; elsewhere it is refused.

    Raises:
        InvalidGrammarError: the pattern is malformed.
        UnsupportedGrammarError: it uses a construct that is not offered.
    """
    ahead, rest = _leading_assertions(pattern)
    node = parse_regex(rest, dialect="ecma")
    found = union(_searched(variant) for variant in _variants(node, pattern))
    for is_negative, asserted in ahead:
        other = pattern_language(f"^(?:{asserted})")
        found = difference(found, other) if is_negative else intersection([found, other])
    return found


def _leading_assertions(pattern: str) -> tuple[list[tuple[bool, str]], str]:
    """The look-ahead groups behind a leading `^`, as (is negative, pattern), and the pattern without them.

    None are taken if the pattern is an alternation, since `^` then belongs to its first option only.
    """
    found: list[tuple[bool, str]] = []
    at = 1
    while pattern.startswith(("^(?!", "^(?="), 0) and pattern.startswith(("(?!", "(?="), at):
        end = _closing(pattern, at + 3)
        if end is None or pattern[end + 1 : end + 2] in ("*", "+", "?", "{"):
            break
        found.append((pattern[at + 2] == "!", pattern[at + 3 : end]))
        at = end + 1
    if not found or _closing(pattern, at, stop="|") is not None:
        return [], pattern
    return found, f"^{pattern[at:]}"


def _closing(pattern: str, at: int, stop: str = ")") -> int | None:
    """The index of the first `stop` from `at` on that is outside groups, classes and escapes; None if there is none."""
    depth = 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == stop and depth == 0:
            return at
        elif char in "()":
            depth += 1 if char == "(" else -1
        at += 1
    return None


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
