"""Syntax to a byte automaton: Thompson construction, position tests resolved, trimmed to live states; knows no tokens.

An edge between two states reads one whole character. How a character is spelled in bytes is kept apart, once for each set of
characters, in the inner states of its `Utf8Fragment`; an edge calls such a fragment and names the state to return to. So a thousand
copies of a character class are a thousand edges, and bounded repeats are linear in their bound.

Every state of the result lies on a path from the start to the accepting state, so a set of states is alive exactly when it is not empty.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sglang_lite.grammar.charset import ENTRY, EXIT, Utf8Fragment, utf8_fragment
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.syntax import Alternate, Bytes, Chars, Choices, Concat, Node, Repeat, TextEdge

Int32Array = npt.NDArray[np.int32]
UInt8Array = npt.NDArray[np.uint8]

DEFAULT_MAX_STATES = 200_000


class ByteNfa(NamedTuple):
    """A trimmed non-deterministic automaton (N states, A inner states, C byte classes), in compressed sparse rows.

    A position in a text is a set of items. The item of inner state i with the return state r is the number `i * N + r`;
    the item of having reached the end is `A * N`.

    Attributes:
        empty_offsets, empty_targets: int32 [N + 1], [*]; the states that a state reaches without a byte.
        call_offsets: int32 [N + 1]; rows of the two arrays below.
        call_inner, call_return: int32 [*]; where an edge begins to spell its character, and the state behind it.
        inner_offsets: int32 [A + 1]; rows of the three arrays below, in ascending order of bytes, which do not overlap.
        inner_low, inner_high: int32 [*]; first and last byte class of a step.
        inner_next: int32 [*]; the next inner state, -1 where the character is complete.
        byte_class: uint8 [256]; bytes of one class behave alike everywhere.
        class_byte: int32 [C]; the byte of a class that has one byte only, else -1.
        start, accept: state numbers; `start` is -1 if no text is accepted at all.
    """

    empty_offsets: Int32Array
    empty_targets: Int32Array
    call_offsets: Int32Array
    call_inner: Int32Array
    call_return: Int32Array
    inner_offsets: Int32Array
    inner_low: Int32Array
    inner_high: Int32Array
    inner_next: Int32Array
    byte_class: UInt8Array
    class_byte: Int32Array
    start: int
    accept: int

    @property
    def num_states(self) -> int:
        """States, inner ones not counted."""
        return len(self.call_offsets) - 1

    @property
    def num_classes(self) -> int:
        """Byte classes; the width of a row of the deterministic tables."""
        return len(self.class_byte)

    @property
    def max_items(self) -> int:
        """More items than one step can gather: each edge adds one at a time, and a character has at most four bytes."""
        return 5 * len(self.call_inner) + 2


def build_nfa(node: Node, *, max_states: int = DEFAULT_MAX_STATES) -> ByteNfa:
    """The automaton of the byte strings of `node`.

    Raises:
        GrammarTooLargeError: it would have more than `max_states` states.
    """
    if _size(node) > max_states:
        raise GrammarTooLargeError(
            f"building the automaton: it needs more than {max_states} states; lower the bounds of the repeats or raise max_states"
        )
    graph = _Graph()
    start = graph.new_state()
    accept = graph.add(node, start)
    if graph.tests:
        graph, start, accept = _resolve_tests(graph, start, accept)
    return _pack(graph, start, accept)


def _size(node: Node) -> int:
    """States that `node` adds to a graph; known before any is made."""
    match node:
        case Bytes(data):
            return len(data)
        case Chars() | TextEdge():
            return 1
        case Concat(parts):
            return sum(map(_size, parts))
        case Alternate(options):
            return 1 + sum(map(_size, options))
        case Choices(texts):
            return 1 + sum(len(text) - _shared(before, text) for before, text in pairwise((b"", *texts)))
        case Repeat(item, low, high):
            copies = max(low, 1) if high is None else high
            return 1 + copies * _size(item)


def _shared(left: bytes, right: bytes) -> int:
    """Length of the longest common prefix."""
    limit = min(len(left), len(right))
    return next((i for i in range(limit) if left[i] != right[i]), limit)


class _Graph:
    """An automaton while it grows: states are ints, an edge carries a whole character as a `Utf8Fragment`."""

    def __init__(self) -> None:
        self.empty: list[list[int]] = []
        self.edges: list[list[tuple[Utf8Fragment, int]]] = []
        self.tests: dict[int, list[tuple[bool, int]]] = defaultdict(list)  # source -> (is a test for the end, target)
        self._fragments: dict[int, Utf8Fragment | None] = {}

    def new_state(self) -> int:
        self.empty.append([])
        self.edges.append([])
        return len(self.empty) - 1

    def add(self, node: Node, source: int) -> int:
        """Add the texts of `node` behind `source`; returns the state they end in. Only out-edges are added to `source`."""
        match node:
            case Bytes(data):
                for byte in data:
                    target = self.new_state()
                    self.edges[source].append((_BYTE_FRAGMENTS[byte], target))
                    source = target
                return source
            case Chars():
                return self._add_chars(node, source)
            case TextEdge(end):
                target = self.new_state()
                self.tests[source].append((end, target))
                return target
            case Concat(parts):
                for part in parts:
                    source = self.add(part, source)
                return source
            case Alternate(options):
                target = self.new_state()
                for option in options:
                    self.empty[self.add(option, source)].append(target)
                return target
            case Choices(texts):
                return self._add_choices(texts, source)
            case Repeat(item, low, high):
                return self._add_repeat(item, low, high, source)

    def _add_chars(self, node: Chars, source: int) -> int:
        # Copies of a repeated item share the node: its identity spares the hash of a large set for each copy.
        if id(node) not in self._fragments:
            self._fragments[id(node)] = utf8_fragment(node.charset)
        fragment = self._fragments[id(node)]
        target = self.new_state()
        if fragment is not None:
            self.edges[source].append((fragment, target))
        return target

    def _add_choices(self, texts: tuple[bytes, ...], source: int) -> int:
        """A tree of the sorted `texts`: common prefixes share their states."""
        end = self.new_state()
        path = [source]  # path[i] is the state behind the first i bytes of the text before
        for before, text in pairwise((b"", *texts)):
            shared = _shared(before, text)
            del path[shared + 1 :]
            for byte in text[shared:]:
                path.append(self.new_state())
                self.edges[path[-2]].append((_BYTE_FRAGMENTS[byte], path[-1]))
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


_BYTE_FRAGMENTS = [Utf8Fragment(interior=0, edges=((0, byte, byte, 1),)) for byte in range(256)]


def _resolve_tests(graph: _Graph, start: int, accept: int) -> tuple[_Graph, int, int]:
    """The same texts without position tests: states are paired with what is known of the place.

    The pairs (state, bytes were read, end was promised) are explored from the start. A test for the begin is passed only before
    the first byte; after a passed test for the end no byte may follow.
    """
    resolved = _Graph()
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
            resolved.edges[source] += [(fragment, name(target, True, False)) for fragment, target in graph.edges[state]]
    return resolved, first, last


def _live_states(graph: _Graph, start: int, accept: int) -> list[int]:
    """States on a path from `start` to `accept`, in ascending order."""
    forward = [
        [*graph.empty[state], *(target for _, target in graph.edges[state])] for state in range(len(graph.empty))
    ]
    backward: list[list[int]] = [[] for _ in forward]
    for state, targets in enumerate(forward):
        for target in targets:
            backward[target].append(state)
    reachable = _reach(forward, start)
    productive = _reach(backward, accept)
    return [state for state in range(len(forward)) if reachable[state] and productive[state]]


def _reach(neighbours: list[list[int]], origin: int) -> bytearray:
    seen = bytearray(len(neighbours))
    seen[origin] = 1
    waiting = [origin]
    while waiting:
        for state in neighbours[waiting.pop()]:
            if not seen[state]:
                seen[state] = 1
                waiting.append(state)
    return seen


def _pack(graph: _Graph, start: int, accept: int) -> ByteNfa:
    """Trim `graph`, lay its fragments side by side, and find the byte classes."""
    live = _live_states(graph, start, accept)
    number = [-1] * len(graph.empty)
    for new, old in enumerate(live):
        number[old] = new
    spelling = _Spelling()
    empty_counts, empty_targets = [0], []
    call_counts, call_inner, call_return = [0], [], []
    for state in live:
        empty_targets += [number[target] for target in graph.empty[state] if number[target] >= 0]
        for fragment, target in graph.edges[state]:
            if number[target] >= 0:
                call_inner.append(spelling.entry(fragment))
                call_return.append(number[target])
        empty_counts.append(len(empty_targets))
        call_counts.append(len(call_inner))
    if len(spelling.rows) * len(live) >= 2**31:
        raise GrammarTooLargeError(
            f"building the automaton: {len(live)} states with {len(spelling.rows)} inner states are too many"
        )
    edges = np.array([edge for row in spelling.rows for edge in row], np.int32).reshape(-1, 3)
    byte_class, class_byte = _byte_classes(edges[:, 0], edges[:, 1])
    return ByteNfa(
        empty_offsets=np.array(empty_counts, np.int32),
        empty_targets=np.array(empty_targets, np.int32),
        call_offsets=np.array(call_counts, np.int32),
        call_inner=np.array(call_inner, np.int32),
        call_return=np.array(call_return, np.int32),
        inner_offsets=np.cumsum([0, *map(len, spelling.rows)], dtype=np.int32),
        inner_low=byte_class[edges[:, 0]].astype(np.int32),
        inner_high=byte_class[edges[:, 1]].astype(np.int32),
        inner_next=np.ascontiguousarray(edges[:, 2]),
        byte_class=byte_class,
        class_byte=class_byte,
        start=number[start],
        accept=number[accept],
    )


class _Spelling:
    """The inner states of all fragments in use; `rows[i]` holds the steps (low byte, high byte, next or -1) of inner state i."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[int, int, int]]] = []
        self._entries: dict[int, int] = {}

    def entry(self, fragment: Utf8Fragment) -> int:
        """The inner state where `fragment` begins, laid out when it is first used."""
        base = self._entries.get(id(fragment))
        if base is None:
            base = self._entries[id(fragment)] = len(self.rows)
            self.rows += [[] for _ in range(1 + fragment.interior)]
            for source, low, high, target in fragment.edges:
                following = -1 if target == EXIT else _inner(base, target)
                self.rows[_inner(base, source)].append((low, high, following))
        return base


def _inner(base: int, local: int) -> int:
    """Number of a fragment's local state: the entry first, the exit left out."""
    return base if local == ENTRY else base + local - 1


def _byte_classes(low: Int32Array, high: Int32Array) -> tuple[UInt8Array, Int32Array]:
    """Class of each byte (uint8 [256]) and the only byte of each class or -1 (int32 [C]): no edge separates bytes of one class."""
    begins = np.zeros(257, np.int32)
    begins[0] = 1
    begins[low] = 1
    begins[high + 1] = 1
    byte_class = (np.cumsum(begins[:256]) - 1).astype(np.uint8)
    sizes = np.bincount(byte_class)
    firsts = np.flatnonzero(begins[:256])
    return byte_class, np.where(sizes == 1, firsts, -1).astype(np.int32)
