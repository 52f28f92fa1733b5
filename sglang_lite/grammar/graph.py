"""An automaton while it grows from syntax: Thompson construction, position tests, references; knows no bytes beyond its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Protocol

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.spelling import char_dfa, choices_dfa, literal_dfa, shared_length
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
    has_position_test,
)


class Combine(Protocol):
    """Makes the deterministic automaton of an intersection or a difference; None if it has no text."""

    def __call__(self, node: Both | Without, /) -> ByteDfa | None:
        """The texts of `node`."""
        ...


class Arrows:
    """Edges of one kind as parallel lists: source, what the edge carries, target."""

    def __init__(self) -> None:
        self.source: list[int] = []
        self.carried: list[int] = []
        self.target: list[int] = []

    def add(self, source: int, carried: int, target: int) -> None:
        """One more edge."""
        self.source.append(source)
        self.carried.append(carried)
        self.target.append(target)

    def add_all(self, other: Arrows, base: int) -> None:
        """The edges of `other`, whose states are numbered from `base` here."""
        self.source += [base + state for state in other.source]
        self.carried += other.carried
        self.target += [base + state for state in other.target]

    def by_source(self) -> dict[int, list[tuple[int, int]]]:
        """(carried, target) of each source."""
        found: dict[int, list[tuple[int, int]]] = {}
        for source, carried, target in zip(self.source, self.carried, self.target, strict=True):
            found.setdefault(source, []).append((carried, target))
        return found


class Graph:
    """States are ints from 0; lists of edges, not objects for states, since there are many.

    Attributes:
        num_states: how many there are.
        empty: edges without a byte; they carry nothing.
        edges: edges that carry the index in `labels` of what they read.
        refs: edges that carry the number in `names` of the rule entered; the target is the state to return to.
        specials: edges that carry a special token.
        tests: edges that carry 1 for a test for the end, 0 for one for the begin.
        labels, names: shared with all parts.

    Args:
        rules: rules whose references are replaced by what they name; all others become `refs`.
        combine: for intersections and differences.
    """

    def __init__(self, rules: Mapping[str, Node], combine: Combine, *, within: Graph | None = None) -> None:
        self.num_states = 0
        self.empty, self.edges, self.refs, self.specials, self.tests = (Arrows() for _ in range(5))
        self.labels: list[ByteDfa] = [] if within is None else within.labels
        self.names: dict[str, int] = {} if within is None else within.names
        self._rules = rules
        self._combine = combine
        # By identity of the node: copies of a repeated item share it, which spares the hash of a large set for each copy.
        self._known: dict[int, tuple[Node, int]] = {} if within is None else within._known
        self._index: dict[int, int] = {} if within is None else within._index

    def new_state(self) -> int:
        """A state without edges."""
        self.num_states += 1
        return self.num_states - 1

    def add_part(self, node: Node) -> tuple[int, int]:
        """Add the texts of `node` apart from all else, position tests resolved to the part's own borders: (first, last state)."""
        if not has_position_test(node):
            first = self.new_state()
            return first, self.add(node, first)
        part = Graph(self._rules, self._combine, within=self)
        first = part.new_state()
        last = part.add(node, first)
        if part.tests.source:
            if part.refs.source:
                names = ", ".join(sorted(name for name, number in self.names.items() if number in part.refs.carried))
                raise UnsupportedGrammarError(
                    f"building the automaton: a position test (^ or $) beside references to the rules {names} is not supported"
                )
            part, first, last = _without_tests(part, first, last)
        base = self.num_states
        self.num_states += part.num_states
        for mine, theirs in (
            (self.empty, part.empty),
            (self.edges, part.edges),
            (self.refs, part.refs),
            (self.specials, part.specials),
        ):
            mine.add_all(theirs, base)
        return base + first, base + last

    def add(self, node: Node, source: int) -> int:
        """Add the texts of `node` behind `source`; returns the state they end in. Only out-edges are added to `source`."""
        match node:
            case Bytes(data):
                return self._add_literal(data, source) if data else source
            case Chars() | Choices() | Both() | Without():
                return self._add_labelled(node, source)
            case Concat(parts):
                for part in parts:
                    source = self.add(part, source)
                return source
            case Alternate(options):
                target = self.new_state()
                for option in options:
                    self.empty.add(self.add(option, source), 0, target)
                return target
            case Repeat(item, low, high):
                return self._add_repeat(item, low, high, source)
            case Ref(name):
                return self._add_ref(name, source)
            case Whole(item):
                first, last = self.add_part(item)
                self.empty.add(source, 0, first)
                return last
            case TextEdge() | Special():
                return self._add_marker(node, source)

    def _add_marker(self, node: TextEdge | Special, source: int) -> int:
        target = self.new_state()
        if isinstance(node, TextEdge):
            self.tests.add(source, int(node.end), target)
        else:
            self.specials.add(source, node.token_id, target)
        return target

    def _add_literal(self, data: bytes, source: int) -> int:
        label = literal_dfa(data)
        index = self._index.get(id(label))
        if index is None:
            index = self._index[id(label)] = len(self.labels)
            self.labels.append(label)
        target = self.new_state()
        self.edges.add(source, index, target)
        return target

    def _add_labelled(self, node: Chars | Choices | Both | Without, source: int) -> int:
        if id(node) not in self._known:
            made = self._label(node)
            self._known[id(node)] = node, -1 if made is None else len(self.labels)
            self.labels += [] if made is None else [made]
        index = self._known[id(node)][1]
        target = self.new_state()
        if index >= 0:
            if self.labels[index].accepts_empty:
                self.empty.add(source, 0, target)
            self.edges.add(source, index, target)
        return target

    def _label(self, node: Chars | Choices | Both | Without) -> ByteDfa | None:
        if isinstance(node, Chars):
            return char_dfa(node.charset)
        return choices_dfa(node.texts) if isinstance(node, Choices) else self._combine(node)

    def _add_ref(self, name: str, source: int) -> int:
        if name in self._rules:
            return self.add(self._rules[name], source)
        target = self.new_state()
        self.refs.add(source, self.names.setdefault(name, len(self.names)), target)
        return target

    def _add_repeat(self, item: Node, low: int, high: int | None, source: int) -> int:
        if high is None:
            for _ in range(low - 1):
                source = self.add(item, source)
            head = self.new_state()
            self.empty.add(source, 0, head)
            last = self.add(item, head)
            self.empty.add(last, 0, head)
            return last if low else head
        for _ in range(low):
            source = self.add(item, source)
        if high == low:
            return source
        end = self.new_state()
        for _ in range(high - low):
            self.empty.add(source, 0, end)
            source = self.add(item, source)
        self.empty.add(source, 0, end)
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


def _without_tests(graph: Graph, start: int, accept: int) -> tuple[Graph, int, int]:
    """The same texts without position tests: states are paired with what is known of the place.

    The pairs (state, bytes were read, end was promised) are explored from the start. A test for the begin is passed only before
    the first byte; after a passed test for the end no byte may follow.
    """
    resolved = Graph(graph._rules, graph._combine, within=graph)
    names: dict[tuple[int, bool, bool], int] = {}
    waiting: list[tuple[int, bool, bool]] = []

    def name(state: int, moved: bool, ended: bool) -> int:
        key = (state, moved, ended)
        if key not in names:
            names[key] = resolved.new_state()
            waiting.append(key)
        return names[key]

    empty, edges, specials, tests = (
        kind.by_source() for kind in (graph.empty, graph.edges, graph.specials, graph.tests)
    )
    first, last = name(start, False, False), resolved.new_state()
    while waiting:
        state, moved, ended = waiting.pop()
        source = names[state, moved, ended]
        if state == accept:
            resolved.empty.add(source, 0, last)
        for _, target in empty.get(state, ()):
            resolved.empty.add(source, 0, name(target, moved, ended))
        for is_end, target in tests.get(state, ()):
            if is_end or not moved:
                resolved.empty.add(source, 0, name(target, moved, ended or bool(is_end)))
        if not ended:
            for label, target in edges.get(state, ()):
                resolved.edges.add(source, label, name(target, True, False))
            for token, target in specials.get(state, ()):
                resolved.specials.add(source, token, name(target, True, False))
    return resolved, first, last
