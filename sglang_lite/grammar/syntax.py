"""The small language that every front end is parsed into: what texts there are, not how they are matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sglang_lite.grammar.charset import NOTHING, CharSet
from sglang_lite.grammar.hashing import Hashed, hashed_once


@dataclass(frozen=True, slots=True)
class Bytes:
    """Exactly these bytes; no bytes at all is the empty text."""

    data: bytes


@hashed_once
@dataclass(frozen=True, slots=True)
class Chars(Hashed):
    """One character of a set, in UTF-8."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class TextEdge:
    """A position test: the begin of the whole text, or (`end`) its end. It consumes nothing."""

    end: bool


@hashed_once
@dataclass(frozen=True, slots=True)
class Concat(Hashed):
    """The parts one after the other."""

    parts: tuple[Node, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class Alternate(Hashed):
    """Any one of the options; all are tried at once, so their order means nothing."""

    options: tuple[Node, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class Paths(Hashed):
    """The texts on the ways from state 0 to the last of `size` states (two at least); none leads to state 0, none on from the last.

    An arrow is (source, what is read, target). `open_to` changes nothing: it tells that from each state but the last any characters
    of the set, however many, begin a text of a way on. Masks of such places need not try token by token.
    """

    size: int
    arrows: tuple[tuple[int, Node, int], ...]
    open_to: CharSet | None = None


@hashed_once
@dataclass(frozen=True, slots=True)
class Choices(Hashed):
    """Any one of the byte strings `texts`, which are sorted and distinct; one may begin with another."""

    texts: tuple[bytes, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class Repeat(Hashed):
    """`low` up to `high` copies of `item`; None is no upper bound."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """The texts of the rule `name` of the `Grammar` around it; the only way to recursion."""

    name: str


@hashed_once
@dataclass(frozen=True, slots=True)
class Both(Hashed):
    """Texts that are in `left` and in `right`. Neither side refers to a recursive rule or a special token."""

    left: Node
    right: Node


@hashed_once
@dataclass(frozen=True, slots=True)
class Without(Hashed):
    """Texts that are in `left` and not in `right`. Neither side refers to a recursive rule or a special token."""

    left: Node
    right: Node


@hashed_once
@dataclass(frozen=True, slots=True)
class Whole(Hashed):
    """The texts of `item`, whose position tests speak of the part that `item` matches, not of the text around it.

    Sides of `Both` and `Without` are read so without being wrapped. No references to recursive rules inside.
    """

    item: Node


@dataclass(frozen=True, slots=True)
class Special:
    """One special token of the vocabulary, by its id; its spelling as text does not match, and it is never an end token."""

    token_id: int


Node = Bytes | Chars | TextEdge | Concat | Alternate | Paths | Choices | Repeat | Ref | Both | Without | Whole | Special

EMPTY = Bytes(b"")
NEVER = Chars(NOTHING)  # no text at all


@dataclass(frozen=True)
class Grammar:
    """A start and the rules that references name. Rules that nothing refers to are left alone, whatever is in them.

    Position tests in a rule speak of the part that the rule matches.
    """

    start: Node
    rules: Mapping[str, Node] = field(default_factory=dict[str, Node])


def concat(parts: Iterable[Node]) -> Node:
    """The sequence of `parts`, with empty ones dropped and neighbouring bytes joined."""
    joined: list[Node] = []
    run = b""  # bytes not yet in `joined`
    for part in parts:
        for piece in part.parts if type(part) is Concat else (part,):
            if type(piece) is Bytes:
                run += piece.data
                continue
            if run:
                joined.append(Bytes(run))
                run = b""
            joined.append(piece)
    if run:
        joined.append(Bytes(run))
    if not joined:
        return EMPTY
    return joined[0] if len(joined) == 1 else Concat(tuple(joined))


def alternate(options: Iterable[Node]) -> Node:
    """Any of `options` (at least one), with sets of characters joined."""
    kept = tuple(options)
    assert kept, "an alternation needs an option"
    sets = [option for option in kept if isinstance(option, Chars)]
    if len(sets) > 1:
        joined = Chars(sets[0].charset.union(*(other.charset for other in sets[1:])))
        kept = tuple(
            joined if option is sets[0] else option
            for option in kept
            if option is sets[0] or not isinstance(option, Chars)
        )
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


def both(*nodes: Node) -> Node:
    """Texts that are in all of `nodes` (at least one)."""
    assert nodes, "an intersection needs an operand"
    result = nodes[0]
    for node in nodes[1:]:
        mine, other = listed_texts(result), listed_texts(node)
        if mine is not None and other is not None:
            result = _any_of(mine & other)
        elif result != node:
            result = Both(result, node)
    return result


def without(left: Node, *excluded: Node) -> Node:
    """Texts of `left` that are in none of `excluded`."""
    for node in excluded:
        mine, other = listed_texts(left), listed_texts(node)
        if mine is not None and other is not None:
            left = _any_of(mine - other)
        elif left == node:
            left = NEVER
        elif node != NEVER and left != NEVER:
            left = Without(left, node)
    return left


def whole(item: Node) -> Node:
    """`item` with position tests of its own; itself if it has none."""
    return Whole(item) if has_position_test(item) else item


def listed_texts(node: Node) -> frozenset[bytes] | None:
    """The texts of a node that is a plain list of them; None for any other node."""
    match node:
        case Bytes(data):
            return frozenset((data,))
        case Choices(texts):
            return frozenset(texts)
        case _:
            return frozenset() if node == NEVER else None


def has_position_test(node: Node) -> bool:
    """Whether a position test of `node` speaks of the text around it. Rules behind references are not looked into."""
    match node:
        case TextEdge():
            return True
        case Concat(parts) | Alternate(parts):
            return any(map(has_position_test, parts))
        case Repeat(item, _, _):
            return has_position_test(item)
        case _:
            return False


def _any_of(texts: frozenset[bytes]) -> Node:
    return choices(texts) if texts else NEVER


def may_be_empty(node: Node) -> bool:
    """Whether the empty text matches wherever it stands; a position test does not count, since it may fail.

    What this module alone cannot tell (references, differences, paths) counts as not empty.
    """
    match node:
        case Bytes(data):
            return not data
        case Chars() | Paths() | TextEdge() | Ref() | Without() | Special():
            return False
        case Both(left, right):
            return may_be_empty(left) and may_be_empty(right)
        case Whole(item):
            return may_be_empty(item)
        case Concat(parts):
            return all(may_be_empty(part) for part in parts)
        case Alternate(options):
            return any(may_be_empty(option) for option in options)
        case Choices(texts):
            return not texts[0]
        case Repeat(item, low, _):
            return low == 0 or may_be_empty(item)


def shared_length(left: bytes, right: bytes) -> int:
    """Length of the longest common prefix."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(i for i in range(limit) if left[i] != right[i])
