"""An automaton while it grows from syntax: Thompson construction, position tests, references; knows no bytes beyond its labels."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.facts import Facts, facts_of
from sglang_lite.grammar.nfa import ByteDfa, Int32Array
from sglang_lite.grammar.spelling import char_dfa, choices_dfa, literal_dfa, open_dfa
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
    has_position_test,
)

_LEAST_SHARED, _MOST_SHARED = 20, 2000  # states


class Combine(Protocol):
    """Makes the deterministic automaton of an intersection or a difference; None if it has no text."""

    def __call__(self, node: Both | Without, /) -> ByteDfa | None:
        """The texts of `node`."""
        ...


class Arrows:
    """Edges of one kind, int32 [*, 3] (source, what the edge carries, target) in one flat buffer, since there are many."""

    def __init__(self) -> None:
        self._flat = array("i")

    def __len__(self) -> int:
        return len(self._flat) // 3

    @property
    def source(self) -> list[int]:
        """The source of each edge."""
        return self._flat[0::3].tolist()

    @property
    def carried(self) -> list[int]:
        """What each edge carries."""
        return self._flat[1::3].tolist()

    @property
    def target(self) -> list[int]:
        """The target of each edge."""
        return self._flat[2::3].tolist()

    def rows(self, begin: int = 0) -> Int32Array:
        """A copy of the edges from number `begin` on, int32 [*, 3]."""
        return np.array(self._flat[3 * begin :], np.int32).reshape(-1, 3)

    def add(self, source: int, carried: int, target: int) -> None:
        """One more edge."""
        self._flat.extend((source, carried, target))

    def add_rows(self, rows: Int32Array) -> None:
        """More edges, int32 [*, 3]."""
        self._flat.frombytes(np.ascontiguousarray(rows, np.int32).tobytes())

    def add_all(self, other: Arrows, base: int) -> None:
        """The edges of `other`, whose states are numbered from `base` here."""
        self.add_rows(other.rows() + np.array([base, 0, base], np.int32))

    def by_source(self) -> dict[int, list[tuple[int, int]]]:
        """(carried, target) of each source."""
        found: dict[int, list[tuple[int, int]]] = {}
        for source, carried, target in self.rows().tolist():
            found.setdefault(source, []).append((carried, target))
        return found


class _Template(NamedTuple):
    """An inlined rule drawn once: its number, its states, the last of them, and its edges of each kind, in which state 0 is the source."""

    number: int
    size: int
    last: int
    rows: tuple[Int32Array, ...]


class _Shared(NamedTuple):
    """A part that refers to nothing, drawn once for all graphs: states from 0, the last of them, empty edges, and edges that carry a place in `labels`."""

    size: int
    last: int
    empty: Int32Array
    edges: Int32Array
    labels: tuple[ByteDfa, ...]


class Graph:
    """States are ints from 0; lists of edges, not objects for states, since there are many.

    Attributes:
        num_states: how many there are.
        empty: edges without a byte; they carry nothing.
        edges: edges that carry the index in `labels` of what they read.
        refs: edges that carry the number in `names` of the rule entered; the target is the state to return to.
        specials: edges that carry a special token.
        tests: edges that carry 1 for a test for the end, 0 for one for the begin.
        copies: places where the states of an inlined rule are still to be drawn: behind the source, the rule's number carried, from the target on.
        labels, names: shared with all parts.

    Args:
        rules: rules whose references are replaced by what they name; all others become `refs`.
        combine: for intersections and differences.
    """

    def __init__(self, rules: Mapping[str, Node], combine: Combine, *, within: Graph | None = None) -> None:
        self.num_states = 0
        self.empty, self.edges, self.refs, self.specials, self.tests, self.copies = (Arrows() for _ in range(6))
        self.labels: list[ByteDfa] = [] if within is None else within.labels
        self.names: dict[str, int] = {} if within is None else within.names
        self._rules = rules
        self._combine = combine
        # By identity of the node: copies of a repeated item share it, which spares the hash of a large set for each copy.
        self._known: dict[int, tuple[Node, int]] = {} if within is None else within._known
        self._index: dict[int, int] = {} if within is None else within._index
        self._templates: dict[str, _Template] = {} if within is None else within._templates

    def new_state(self) -> int:
        """A state without edges."""
        state = self.num_states
        self.num_states = state + 1
        return state

    def add_part(self, node: Node) -> tuple[int, int]:
        """Add the texts of `node` apart from all else, position tests resolved to the part's own borders: (first, last state)."""
        facts = facts_of(node)
        if not facts.has_tests or not has_position_test(node):
            if _is_shared(facts):
                return self._add_shared(_shared(node))
            first = self.new_state()
            return first, self.add(node, first)
        part = Graph(self._rules, self._combine, within=self)
        first = part.new_state()
        last = part.add(node, first)
        if len(part.tests):
            part.draw_copies()
            if len(part.refs):
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
            (self.copies, part.copies),
        ):
            mine.add_all(theirs, base)
        return base + first, base + last

    def _add_shared(self, part: _Shared) -> tuple[int, int]:
        base = self.num_states
        self.num_states += part.size
        moved = np.array([base, 0, base], np.int32)
        self.empty.add_rows(part.empty + moved)
        self.edges.add_rows(self._numbered(part) + moved)
        return base, base + part.last

    def _numbered(self, part: _Shared) -> Int32Array:
        """The edges of `part` with the numbers that its labels have here."""
        edges = part.edges.copy()
        edges[:, 1] = np.array([self._number(label) for label in part.labels], np.int32)[edges[:, 1]]
        return edges

    def add(self, node: Node, source: int) -> int:
        """Add the texts of `node` behind `source`; returns the state they end in. Only out-edges are added to `source`."""
        kind = type(
            node
        )  # told apart by identity, the frequent ones first: this method sees every node of every grammar
        if kind is Bytes:
            return self._add_literal(node.data, source) if node.data else source  # pyright: ignore[reportAttributeAccessIssue]
        if kind is Concat:
            for part in node.parts:  # pyright: ignore[reportAttributeAccessIssue]
                source = self.add(part, source)
            return source
        if isinstance(node, Ref):
            return self._add_ref(node.name, source)
        if isinstance(node, Chars | Choices | Both | Without):
            return self._add_labelled(node, source)
        if isinstance(node, Alternate):
            return self._add_alternate(node, source)
        if isinstance(node, Repeat):
            return self._add_repeat(node.item, node.low, node.high, source)
        if isinstance(node, Paths):
            return self._add_paths(node, source)
        if isinstance(node, Whole):
            first, last = self.add_part(node.item)
            self.empty.add(source, 0, first)
            return last
        assert isinstance(node, TextEdge | Special), f"a graph cannot take a {kind.__name__}"
        return self._add_marker(node, source)

    def _add_alternate(self, node: Alternate, source: int) -> int:
        target = self.new_state()
        for option in node.options:
            self.empty.add(self.add(option, source), 0, target)
        return target

    def _add_paths(self, node: Paths, source: int) -> int:
        states = [source, *range(self.num_states, self.num_states + node.size - 1)]
        self.num_states += node.size - 1
        last = states[-1]
        if node.open_to is not None:
            told = self._number(open_dfa(node.open_to))
            for state in states[:-1]:
                self.edges.add(state, told, last)
        for begin, inner, end in node.arrows:
            if isinstance(inner, Bytes) and inner.data:
                self.edges.add(states[begin], self._number(literal_dfa(inner.data)), states[end])
            else:
                self.empty.add(self.add(inner, states[begin]), 0, states[end])
        return last

    def _add_marker(self, node: TextEdge | Special, source: int) -> int:
        target = self.new_state()
        if isinstance(node, TextEdge):
            self.tests.add(source, int(node.end), target)
        else:
            self.specials.add(source, node.token_id, target)
        return target

    def _add_literal(self, data: bytes, source: int) -> int:
        target = self.new_state()
        self.edges.add(source, self._number(literal_dfa(data)), target)
        return target

    def _number(self, label: ByteDfa) -> int:
        """The number of a label that is made once for all graphs."""
        index = self._index.get(id(label))
        if index is None:
            index = self._index[id(label)] = len(self.labels)
            self.labels.append(label)
        return index

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
            template = self._templates.get(name)
            if template is None:
                template = self._templates[name] = self._template(name)
            if not template.size:
                return self.add(self._rules[name], source)
            first = self.num_states
            self.num_states += template.size
            self.copies.add(source, template.number, first)
            return first + template.last
        target = self.new_state()
        self.refs.add(source, self.names.setdefault(name, len(self.names)), target)
        return target

    def _template(self, name: str) -> _Template:
        """The rule as a part to be copied; one of size 0 where it is to be added from its syntax."""
        node = self._rules[name]
        if _is_shared(facts_of(node)):
            shared, none = _shared(node), np.zeros((0, 3), np.int32)
            if shared.last:
                rows = (shared.empty, self._numbered(shared), none, none)
                return _Template(len(self._templates), shared.size - 1, shared.last - 1, rows)
        part = Graph(self._rules, self._combine, within=self)
        last = part.add(node, part.new_state())
        number = len(self._templates)
        if last == 0 or len(part.tests):
            return _Template(number, 0, 0, ())
        part.draw_copies()
        rows = tuple(kind.rows() for kind in (part.empty, part.edges, part.refs, part.specials))
        return _Template(number, part.num_states - 1, last - 1, rows)

    def draw_copies(self) -> None:
        """Add the edges of all inlined rules that are still to be drawn."""
        if not len(self.copies):
            return
        copies = self.copies.rows()
        self.copies = Arrows()
        numbers = copies[:, 1]
        used = set(numbers.tolist())
        for template in [template for template in self._templates.values() if template.number in used]:
            mine = copies[numbers == template.number]
            source, first = mine[:, :1], mine[:, 2:]
            for kind, rows in zip((self.empty, self.edges, self.refs, self.specials), template.rows, strict=True):
                if len(rows):
                    drawn = np.empty((len(mine), len(rows), 3), np.int32)
                    drawn[:, :, 1] = rows[:, 1]
                    drawn[:, :, 0] = np.where(rows[:, 0] == 0, source, first + rows[:, 0] - 1)
                    drawn[:, :, 2] = first + rows[:, 2] - 1
                    kind.add_rows(drawn)

    def _add_repeat(self, item: Node, low: int, high: int | None, source: int) -> int:
        if high is None:
            source = self._add_copies(item, low - 1, source, None)
            head = self.new_state()
            self.empty.add(source, 0, head)
            last = self.add(item, head)
            self.empty.add(last, 0, head)
            return last if low else head
        source = self._add_copies(item, low, source, None)
        if high == low:
            return source
        end = self.new_state()
        source = self._add_copies(item, high - low, source, end)
        self.empty.add(source, 0, end)
        return end

    def _add_copies(self, item: Node, count: int, source: int, skip_to: int | None) -> int:
        """Copies of `item` one after the other, before each an empty edge to `skip_to`; returns the state behind the last.

        The first is made from the syntax, the others are the same edges with other numbers.
        """
        if count <= 0:
            return source
        kinds = (self.empty, self.edges, self.refs, self.specials, self.tests, self.copies)
        base, begins = self.num_states, [len(kind) for kind in kinds]
        if skip_to is not None:
            self.empty.add(source, 0, skip_to)
        target = self.add(item, source)
        size = self.num_states - base
        if target == source or count == 1:
            return target
        shifts = size * np.arange(1, count, dtype=np.int32)[:, None]
        for kind, begin in zip(kinds, begins, strict=True):
            rows = kind.rows(begin)
            if not len(rows):
                continue
            copies = np.empty((count - 1, len(rows), 3), np.int32)
            copies[:, :, 1] = rows[:, 1]
            for end in (0, 2):
                states = rows[:, end]
                fixed = np.where(states == source, target - size, states)
                copies[:, :, end] = fixed + np.where((states >= base) | (states == source), shifts, 0)
            kind.add_rows(copies)
        self.num_states += size * (count - 1)
        return target + size * (count - 1)


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


def _is_shared(facts: Facts) -> bool:
    """Whether a part is worth keeping: what every schema has, such as numbers and strings, is of this kind."""
    special = facts.has_combinations or facts.has_tests or facts.has_specials
    return _LEAST_SHARED <= facts.size <= _MOST_SHARED and not facts.uses and not special


@lru_cache(maxsize=128)
def _shared(node: Node) -> _Shared:
    graph = Graph({}, _not_asked)
    last = graph.add(node, graph.new_state())
    return _Shared(graph.num_states, last, graph.empty.rows(), graph.edges.rows(), tuple(graph.labels))


def _not_asked(node: Both | Without) -> ByteDfa | None:
    raise AssertionError(f"a shared part has no {type(node).__name__}")
