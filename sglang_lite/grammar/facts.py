"""What one pass over a node tells: which rules it refers to, how large it is, what is in it; knows no rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from sglang_lite.grammar.hashing import Hashed
from sglang_lite.grammar.syntax import (
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Node,
    Paths,
    Ref,
    Repeat,
    Special,
    TextEdge,
    Whole,
    Without,
    shared_length,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a node and all nodes inside it; what references name is not entered.

    Attributes:
        uses: name -> how often it is referred to.
        size: states that the node adds to a graph, references not counted.
        copies: name -> how many copies of what it names the graph would have, sides of `Both` and `Without` not counted.
        has_combinations, has_tests, has_specials: whether there is a `Both` or a `Without`, a position test, a special token.
        has_never: whether there is a set without characters.
    """

    uses: Mapping[str, int]
    size: int
    copies: Mapping[str, int]
    has_combinations: bool
    has_tests: bool
    has_specials: bool
    has_never: bool


def facts_of(node: Node) -> Facts:
    """The facts of `node`, found once for a node that has room for them: rules that all schemas share are not looked at again."""
    if not isinstance(node, Hashed):
        return _found(node)
    try:
        known = node.memo
    except AttributeError:  # the slot is empty until now
        known = _found(node)
        object.__setattr__(node, "memo", known)
    assert isinstance(known, Facts), f"{type(known).__name__} is kept in place of facts"
    return known


def size_of(node: Node, inlined: Callable[[str], int]) -> int:
    """States that `node` adds to a graph, known before any is made; `inlined` says how many a reference adds."""
    facts = facts_of(node)
    return facts.size + sum(times * inlined(name) for name, times in facts.copies.items())


def _found(node: Node) -> Facts:
    uses: dict[str, int] = {}
    copies: dict[str, int] = {}
    kinds: set[type] = set()
    size = 0
    never = False
    waiting: list[tuple[Node, int]] = [(node, 1)]  # nodes and how often they are there
    while waiting:
        part, times = waiting.pop()
        # Told apart by identity, the frequent ones first: this loop sees every node of every grammar.
        if type(part) is Concat:
            for inner in part.parts:
                if type(inner) is Bytes:
                    size += times * len(inner.data)
                else:
                    waiting.append((inner, times))
        elif type(part) is Ref:
            uses[part.name] = uses.get(part.name, 0) + 1
            copies[part.name] = copies.get(part.name, 0) + times
        elif type(part) is Chars:
            size += times
            never = never or not part.charset.ranges
        else:
            kinds.add(type(part))
            size += times * _own_size(part)
            _enter(part, times, waiting)
    combined, tested, named = (not kinds.isdisjoint(some) for some in ((Both, Without), (TextEdge,), (Special,)))
    return Facts(uses, size, copies, combined, tested, named, never)


def _own_size(node: Node) -> int:
    """States of a node without those of the nodes inside it."""
    match node:
        case Bytes(data):
            return len(data)
        case Paths(size):
            return size
        case Choices(texts):
            return _tree_size(texts)
        case _:
            return 1


def _enter(node: Node, times: int, waiting: list[tuple[Node, int]]) -> None:
    match node:
        case Alternate(options):
            waiting += [(inner, times) for inner in options]
        case Repeat(item, low, high):
            waiting.append((item, times * (max(low, 1) if high is None else high)))
        case Paths(_, arrows):
            waiting += [(inner, times) for _, inner, _ in arrows]
        case Whole(item):
            waiting.append((item, times))
        case Both(left, right) | Without(left, right):
            waiting += ((left, 0), (right, 0))
        case _:
            pass


def _tree_size(texts: tuple[bytes, ...]) -> int:
    return 1 + sum(len(text) - shared_length(before, text) for before, text in pairwise((b"", *texts)))
