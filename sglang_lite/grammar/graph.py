"""An automaton while it grows from syntax: Thompson construction, position tests, references; knows no bytes beyond its labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Protocol

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.spelling import BYTES, char_dfa
from sglang_lite.grammar.syntax import (
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Node,
    Ref,
    Repeat,
    Special,
    TextEdge,
    Whole,
    Without,
)


class Combine(Protocol):
    """Makes the deterministic automaton of an intersection or a difference; None if it has no text."""

    def __call__(self, node: Both | Without, /) -> ByteDfa | None:
        """The texts of `node`."""
        ...


class Graph:
    """States are ints; an edge carries a `ByteDfa` that reads its bytes.

    Attributes:
        empty: for each state, the states reached without a byte.
        edges: for each state, (label, target).
        refs: source -> (name of the rule entered, state to return to).
        specials: source -> (special token, target).
        tests: source -> (is a test for the end, target).

    Args:
        rules: rules whose references are replaced by what they name; all others become `refs`.
        combine: for intersections and differences.
    """

    def __init__(self, rules: Mapping[str, Node], combine: Combine) -> None:
        self.empty: list[list[int]] = []
        self.edges: list[list[tuple[ByteDfa, int]]] = []
        self.refs: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.specials: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.tests: dict[int, list[tuple[bool, int]]] = defaultdict(list)
        self._rules = rules
        self._combine = combine
        self._labels: dict[int, tuple[Node, ByteDfa | None]] = {}

    def new_state(self) -> int:
        """A state without edges."""
        self.empty.append([])
        self.edges.append([])
        return len(self.empty) - 1

    def add_part(self, node: Node) -> tuple[int, int]:
        """Add the texts of `node` apart from all else, position tests resolved to the part's own borders: (first, last state)."""
        part = Graph(self._rules, self._combine)
        part._labels = self._labels
        first = part.new_state()
        last = part.add(node, first)
        if part.tests:
            if part.refs:
                names = ", ".join(sorted({name for targets in part.refs.values() for name, _ in targets}))
                raise UnsupportedGrammarError(
                    f"building the automaton: a position test (^ or $) beside references to the rules {names} is not supported"
                )
            part, first, last = _without_tests(part, first, last)
        base = len(self.empty)
        self.empty += [[base + target for target in targets] for targets in part.empty]
        self.edges += [[(label, base + target) for label, target in targets] for targets in part.edges]
        for mine, theirs in ((self.refs, part.refs), (self.specials, part.specials)):
            for source, targets in theirs.items():
                mine[base + source] = [(name, base + target) for name, target in targets]  # pyright: ignore[reportArgumentType]
        return base + first, base + last

    def add(self, node: Node, source: int) -> int:
        """Add the texts of `node` behind `source`; returns the state they end in. Only out-edges are added to `source`."""
        match node:
            case Bytes(data):
                for byte in data:
                    target = self.new_state()
                    self.edges[source].append((BYTES[byte], target))
                    source = target
                return source
            case Chars() | Both() | Without():
                return self._add_labelled(node, source)
            case Concat(parts):
                for part in parts:
                    source = self.add(part, source)
                return source
            case Alternate(options):
                return self._add_options(options, source)
            case Choices(texts):
                return self._add_choices(texts, source)
            case Repeat(item, low, high):
                return self._add_repeat(item, low, high, source)
            case Ref(name):
                return self._add_ref(name, source)
            case Whole(item):
                first, last = self.add_part(item)
                self.empty[source].append(first)
                return last
            case TextEdge() | Special():
                return self._add_marker(node, source)

    def _add_options(self, options: tuple[Node, ...], source: int) -> int:
        target = self.new_state()
        for option in options:
            self.empty[self.add(option, source)].append(target)
        return target

    def _add_marker(self, node: TextEdge | Special, source: int) -> int:
        target = self.new_state()
        if isinstance(node, TextEdge):
            self.tests[source].append((node.end, target))
        else:
            self.specials[source].append((node.token_id, target))
        return target

    def _add_labelled(self, node: Chars | Both | Without, source: int) -> int:
        # Copies of a repeated item share the node: its identity spares the hash of a large set for each copy.
        if id(node) not in self._labels:
            made = char_dfa(node.charset) if isinstance(node, Chars) else self._combine(node)
            self._labels[id(node)] = node, made
        label = self._labels[id(node)][1]
        target = self.new_state()
        if label is not None:
            if label.accepts_empty:
                self.empty[source].append(target)
            if len(label.edges):
                self.edges[source].append((label, target))
        return target

    def _add_ref(self, name: str, source: int) -> int:
        if name in self._rules:
            return self.add(self._rules[name], source)
        target = self.new_state()
        self.refs[source].append((name, target))
        return target

    def _add_choices(self, texts: tuple[bytes, ...], source: int) -> int:
        """A tree of the sorted `texts`: common prefixes share their states."""
        end = self.new_state()
        path = [source]  # path[i] is the state behind the first i bytes of the text before
        for before, text in pairwise((b"", *texts)):
            shared = shared_length(before, text)
            del path[shared + 1 :]
            for byte in text[shared:]:
                path.append(self.new_state())
                self.edges[path[-2]].append((BYTES[byte], path[-1]))
            self.empty[path[-1]].append(end)
        return end

    def _add_repeat(self, item: Node, low: int, high: int | None, source: int) -> int:
        if high is None:
            for _ in range(low - 1):
                source = self.add(item, source)
            head = self.new_state()
            self.empty[source].append(head)
            last = self.add(item, head)
            self.empty[last].append(head)
            return last if low else head
        for _ in range(low):
            source = self.add(item, source)
        if high == low:
            return source
        end = self.new_state()
        for _ in range(high - low):
            self.empty[source].append(end)
            source = self.add(item, source)
        self.empty[source].append(end)
        return end


def size_of(node: Node, inlined: Callable[[str], int]) -> int:
    """States that `node` adds to a graph, known before any is made; `inlined` says how many a reference adds."""
    match node:
        case Bytes(data):
            return len(data)
        case Concat(parts):
            return sum(size_of(part, inlined) for part in parts)
        case Alternate(options):
            return 1 + sum(size_of(option, inlined) for option in options)
        case Choices(texts):
            return 1 + sum(len(text) - shared_length(before, text) for before, text in pairwise((b"", *texts)))
        case Repeat(item, low, high):
            copies = max(low, 1) if high is None else high
            return 1 + copies * size_of(item, inlined)
        case Ref(name):
            return inlined(name)
        case Whole(item):
            return 1 + size_of(item, inlined)
        case _:
            return 1


def shared_length(left: bytes, right: bytes) -> int:
    """Length of the longest common prefix."""
    limit = min(len(left), len(right))
    return next((i for i in range(limit) if left[i] != right[i]), limit)


def _without_tests(graph: Graph, start: int, accept: int) -> tuple[Graph, int, int]:
    """The same texts without position tests: states are paired with what is known of the place.

    The pairs (state, bytes were read, end was promised) are explored from the start. A test for the begin is passed only before
    the first byte; after a passed test for the end no byte may follow.
    """
    resolved = Graph(graph._rules, graph._combine)
    names: dict[tuple[int, bool, bool], int] = {}
    waiting: list[tuple[int, bool, bool]] = []

    def name(state: int, moved: bool, ended: bool) -> int:
        key = (state, moved, ended)
        if key not in names:
            names[key] = resolved.new_state()
            waiting.append(key)
        return names[key]

    first, last = name(start, False, False), resolved.new_state()
    while waiting:
        state, moved, ended = waiting.pop()
        source = names[state, moved, ended]
        if state == accept:
            resolved.empty[source].append(last)
        resolved.empty[source] += [name(target, moved, ended) for target in graph.empty[state]]
        for is_end, target in graph.tests.get(state, ()):
            if is_end or not moved:
                resolved.empty[source].append(name(target, moved, ended or is_end))
        if not ended:
            resolved.edges[source] += [(label, name(target, True, False)) for label, target in graph.edges[state]]
            resolved.specials[source] += [
                (token, name(target, True, False)) for token, target in graph.specials.get(state, ())
            ]
    return resolved, first, last
