"""The small language that every front end is parsed into: what texts there are, not how they are matched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sglang_lite.grammar.charset import CharSet


@dataclass(frozen=True, slots=True)
class Bytes:
    """Exactly these bytes; no bytes at all is the empty text."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set, in UTF-8."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class TextEdge:
    """A position test: the begin of the whole text, or (`end`) its end. It consumes nothing."""

    end: bool


@dataclass(frozen=True, slots=True)
class Concat:
    """The parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternate:
    """Any one of the options; all are tried at once, so their order means nothing."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """Any one of the byte strings `texts`, which are sorted and distinct; one may begin with another."""

    texts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` up to `high` copies of `item`; None is no upper bound."""

    item: Node
    low: int
    high: int | None


Node = Bytes | Chars | TextEdge | Concat | Alternate | Choices | Repeat

EMPTY = Bytes(b"")


def concat(parts: Iterable[Node]) -> Node:
    """The sequence of `parts`, with empty ones dropped and neighbouring bytes joined."""
    joined: list[Node] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Concat) else (part,):
            last = joined[-1] if joined else None
            if isinstance(piece, Bytes) and isinstance(last, Bytes):
                joined[-1] = Bytes(last.data + piece.data)
            elif piece != EMPTY:
                joined.append(piece)
    if not joined:
        return EMPTY
    return joined[0] if len(joined) == 1 else Concat(tuple(joined))


def alternate(options: Iterable[Node]) -> Node:
    """Any of `options` (at least one)."""
    kept = tuple(options)
    assert kept, "an alternation needs an option"
    texts = [option.data for option in kept if isinstance(option, Bytes)]
    if len(texts) == len(kept):
        return choices(texts)
    return kept[0] if len(kept) == 1 else Alternate(kept)


def choices(texts: Iterable[bytes]) -> Node:
    """Any of `texts` (at least one), in any order and with repetitions."""
    distinct = tuple(sorted(set(texts)))
    assert distinct, "a choice needs a text"
    return Bytes(distinct[0]) if len(distinct) == 1 else Choices(distinct)


def repeat(item: Node, low: int, high: int | None) -> Node:
    """`low` to `high` copies of `item`, in the smallest equal form."""
    if high == 0 or item == EMPTY:
        return EMPTY
    if (low, high) == (1, 1):
        return item
    # Fewer copies of what may be empty are already among the texts: one optional chain instead of nested ones.
    return Repeat(item, 0 if may_be_empty(item) else low, high)


def may_be_empty(node: Node) -> bool:
    """Whether the empty text matches wherever it stands; a position test does not count, since it may fail."""
    match node:
        case Bytes(data):
            return not data
        case Chars() | TextEdge():
            return False
        case Concat(parts):
            return all(may_be_empty(part) for part in parts)
        case Alternate(options):
            return any(may_be_empty(option) for option in options)
        case Choices(texts):
            return not texts[0]
        case Repeat(item, low, _):
            return low == 0 or may_be_empty(item)
