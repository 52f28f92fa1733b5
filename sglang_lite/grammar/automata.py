"""Syntax to a byte automaton: rules side by side, trimmed to live states, laid out as arrays; knows no tokens.

An edge between two states reads one whole character, or a text of an intersection or a difference. How that is spelled in bytes is
kept apart, once for each, in the inner states of its `ByteDfa`; an edge calls it and names the state to return to. So a thousand
copies of a character class are a thousand edges, and bounded repeats are linear in their bound.

Every state of the result lies on a path from the start to the end of a text, so a set of states is alive exactly when it is not empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from sglang_lite.grammar.algebra import DEFAULT_MAX_PRODUCT_STATES, difference, intersection
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.graph import Graph, size_of
from sglang_lite.grammar.left_recursion import refuse_left_recursion
from sglang_lite.grammar.nfa import ANY_TEXT, STATE_BITS, ByteDfa, ByteNfa, Int32Array, UInt8Array
from sglang_lite.grammar.rules import RulePlan, plan_rules
from sglang_lite.grammar.syntax import Both, Grammar, Node, Without, both, without

DEFAULT_MAX_STATES = 200_000
_BYTES = 256


def build_nfa(
    grammar: Node | Grammar,
    *,
    max_states: int = DEFAULT_MAX_STATES,
    max_product_states: int = DEFAULT_MAX_PRODUCT_STATES,
) -> ByteNfa:
    """The automaton of the byte strings of `grammar`.

    Raises:
        InvalidGrammarError: a reference names no rule.
        UnsupportedGrammarError: left recursion through several rules, or recursion where it cannot be; the rules are named.
        GrammarTooLargeError: it would have more than `max_states` states, or an intersection or difference
            more than `max_product_states`.
    """
    plan = plan_rules(grammar if isinstance(grammar, Grammar) else Grammar(grammar))
    return _build(plan, max_states, _Combiner(plan, max_states, max_product_states))


def is_empty(node: Node, *, max_product_states: int = DEFAULT_MAX_PRODUCT_STATES) -> bool:
    """Whether no text matches `node`, which has no references.

    Raises:
        GrammarTooLargeError: an intersection or difference in it needs more than `max_product_states` states to tell.
    """
    return build_nfa(node, max_product_states=max_product_states).start < 0


def are_disjoint(left: Node, right: Node, *, max_product_states: int = DEFAULT_MAX_PRODUCT_STATES) -> bool:
    """Whether no text matches both; see `is_empty`."""
    return is_empty(both(left, right), max_product_states=max_product_states)


def is_subset(left: Node, right: Node, *, max_product_states: int = DEFAULT_MAX_PRODUCT_STATES) -> bool:
    """Whether every text of `left` matches `right`; see `is_empty`."""
    return is_empty(without(left, right), max_product_states=max_product_states)


class _Combiner:
    """Intersections and differences of one grammar, each made once."""

    def __init__(self, plan: RulePlan, max_states: int, max_product_states: int) -> None:
        # Neither side recurses, so that all references in it can be replaced.
        self._rules = {**plan.inlined, **plan.called}
        self._max_states = max_states
        self._max_product_states = max_product_states
        self._made: dict[Node, ByteDfa | None] = {}

    def __call__(self, node: Both | Without) -> ByteDfa | None:
        if node not in self._made:
            combine = intersection if isinstance(node, Both) else difference
            left, right = (
                _build(RulePlan(side, self._rules, {}), self._max_states, self) for side in (node.left, node.right)
            )
            self._made[node] = combine(left, right, max_states=self._max_product_states)
        return self._made[node]


def _build(plan: RulePlan, max_states: int, combine: _Combiner) -> ByteNfa:
    sizes: dict[str, int] = {}

    def inlined(name: str) -> int:
        if name not in plan.inlined:
            return 1
        if name not in sizes:
            sizes[name] = size_of(plan.inlined[name], inlined)
        return sizes[name]

    if sum(size_of(node, inlined) for node in (plan.start, *plan.called.values())) > max_states:
        raise GrammarTooLargeError(
            f"building the automaton: it needs more than {max_states} states; lower the bounds of the repeats or raise max_states"
        )
    graph = Graph(plan.inlined, combine)
    start, accept = graph.add_part(plan.start)
    borders = {name: graph.add_part(node) for name, node in plan.called.items()}
    live = _live_states(graph, start, accept, borders)
    return _pack(_Trimmed(graph, live, {accept, *(end for _, end in borders.values())}), start, borders)


def _live_states(graph: Graph, start: int, accept: int, borders: Mapping[str, tuple[int, int]]) -> bytearray:
    """1 for each state on a path of a whole text; a reference is on one if its rule has a text and what follows it has one."""
    size = len(graph.empty)
    steps = [[*graph.empty[state], *(target for _, target in graph.edges[state])] for state in range(size)]
    for state, targets in graph.specials.items():
        steps[state] += [target for _, target in targets]
    productive = _productive_states(graph, steps, [accept, *(end for _, end in borders.values())], borders)
    live = bytearray(size)
    waiting = [start] if productive[start] else []
    while waiting:
        state = waiting.pop()
        if live[state]:
            continue
        live[state] = 1
        waiting += [target for target in steps[state] if productive[target]]
        for name, target in graph.refs.get(state, ()):
            if productive[target] and productive[borders[name][0]]:
                waiting += (target, borders[name][0])
    return live


def _productive_states(
    graph: Graph, steps: list[list[int]], ends: list[int], borders: Mapping[str, tuple[int, int]]
) -> bytearray:
    """1 for each state from which the end of its own rule can be reached."""
    before: list[list[int]] = [[] for _ in steps]
    for state, targets in enumerate(steps):
        for target in targets:
            before[target].append(state)
    # A reference waits for two states: the one behind it and the first of its rule.
    partners: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for state, refs in graph.refs.items():
        for name, target in refs:
            entry = borders[name][0]
            partners[target].append((state, entry))
            partners[entry].append((state, target))
    productive = bytearray(len(steps))
    waiting = list(ends)
    while waiting:
        state = waiting.pop()
        if productive[state]:
            continue
        productive[state] = 1
        waiting += before[state]
        waiting += [source for source, other in partners.get(state, ()) if productive[other] or other == state]
    return productive


class _Trimmed:
    """The live part of a graph; states with one empty edge and nothing else stand for the state behind it."""

    def __init__(self, graph: Graph, live: bytearray, ends: set[int]) -> None:
        self.graph = graph
        self.ends = ends
        self._live = live
        self._stand_in: dict[int, int] = {}
        self.states = [state for state in range(len(live)) if live[state] and self.resolved(state) == state]

    def is_live(self, state: int) -> bool:
        return bool(self._live[state])

    def resolved(self, state: int) -> int:
        """The state that `state` stands for."""
        path = []
        while (following := self._only_empty(state)) >= 0:
            path.append(state)
            state = following
        for passed in path:
            self._stand_in[passed] = state
        return state

    def empty(self, state: int) -> list[int]:
        """States reached without a byte."""
        return list(dict.fromkeys(self.resolved(target) for target in self.graph.empty[state] if self._live[target]))

    def edges(self, state: int) -> list[tuple[ByteDfa, int]]:
        """Labelled edges."""
        return [(label, self.resolved(target)) for label, target in self.graph.edges[state] if self._live[target]]

    def specials(self, state: int) -> list[tuple[int, int]]:
        """Special tokens and targets."""
        return [
            (token, self.resolved(target)) for token, target in self.graph.specials.get(state, ()) if self._live[target]
        ]

    def refs(self, state: int, borders: Mapping[str, tuple[int, int]]) -> list[tuple[str, int]]:
        """References and the states to return to; -1 where only the end of the rule follows."""
        found = []
        for name, target in self.graph.refs.get(state, ()):
            if self._live[target] and self._live[borders[name][0]]:
                behind = self.resolved(target)
                found.append((name, -1 if self._is_bare_end(behind) else behind))
        return found

    def _is_bare_end(self, state: int) -> bool:
        graph = self.graph
        return state in self.ends and not (
            graph.empty[state] or graph.edges[state] or graph.refs.get(state) or graph.specials.get(state)
        )

    def _only_empty(self, state: int) -> int:
        if state in self._stand_in:
            return self._stand_in[state]
        graph = self.graph
        if state in self.ends or graph.edges[state] or graph.refs.get(state) or graph.specials.get(state):
            return -1
        targets = {target for target in graph.empty[state] if self._live[target]}
        return targets.pop() if len(targets) == 1 else -1


def _pack(trimmed: _Trimmed, start: int, borders: Mapping[str, tuple[int, int]]) -> ByteNfa:
    """Lay states and labels side by side, and find the byte classes."""
    number = {state: new for new, state in enumerate(trimmed.states)}
    live_rules = {name: pair for name, pair in borders.items() if trimmed.is_live(pair[0])}
    if live_rules:
        refuse_left_recursion(trimmed, live_rules)
    labels = _Labels()
    empty_counts, empty_targets = [0], []
    call_counts, call_inner, call_return = [0], [], []
    ref_counts, ref_entry, ref_return = [0], [], []
    for state in trimmed.states:
        empty_targets += [number[target] for target in trimmed.empty(state)]
        for label, target in trimmed.edges(state):
            call_inner.append(labels.entry(label))
            call_return.append(number[target])
        for token, target in trimmed.specials(state):
            call_inner.append(labels.special(token))
            call_return.append(number[target])
        for name, behind in trimmed.refs(state, borders):
            ref_entry.append(number[trimmed.resolved(borders[name][0])])
            ref_return.append(number[behind] if behind >= 0 else -1)
        empty_counts.append(len(empty_targets))
        call_counts.append(len(call_inner))
        ref_counts.append(len(ref_entry))
    if max(labels.num_inner, len(number)) >= 1 << STATE_BITS:
        raise GrammarTooLargeError(
            f"building the automaton: {len(number)} states and {labels.num_inner} inner states; at most {1 << STATE_BITS} can be numbered"
        )
    edges = labels.edges()
    byte_class, class_byte = _byte_classes(edges[edges[:, 0] < _BYTES])
    columns = np.concatenate([byte_class, len(class_byte) + np.arange(len(labels.special_ids))]).astype(np.int32)
    return ByteNfa(
        empty_offsets=np.array(empty_counts, np.int32),
        empty_targets=np.array(empty_targets, np.int32),
        call_offsets=np.array(call_counts, np.int32),
        call_inner=np.array(call_inner, np.int32),
        call_return=np.array(call_return, np.int32),
        ref_offsets=np.array(ref_counts, np.int32),
        ref_entry=np.array(ref_entry, np.int32),
        ref_return=np.array(ref_return, np.int32),
        pops=np.array([state in trimmed.ends for state in trimmed.states], np.uint8),
        inner_offsets=labels.offsets(),
        inner_low=columns[edges[:, 0]],
        inner_high=columns[edges[:, 1]],
        inner_next=np.ascontiguousarray(edges[:, 2]),
        inner_exits=edges[:, 3].astype(np.uint8),
        inner_covers=labels.covers(),
        byte_class=byte_class,
        class_byte=np.concatenate([class_byte, np.full(len(labels.special_ids), -1, np.int32)]),
        special_ids=np.array(labels.special_ids, np.int32),
        start=number[trimmed.resolved(start)] if trimmed.is_live(start) else -1,
    )


class _Labels:
    """The inner states of all labels in use, side by side; special tokens stand as bytes from 256 up."""

    def __init__(self) -> None:
        self.num_inner = 0
        self.special_ids: list[int] = []
        self._entries: dict[int, int] = {}
        self._counts: list[Int32Array] = []
        self._edges: list[Int32Array] = []
        self._covers: list[UInt8Array] = []
        self._held: list[ByteDfa] = []  # identities are keys, so the objects must live

    def entry(self, label: ByteDfa) -> int:
        """The inner state where `label` begins, laid out when it is first used."""
        base = self._entries.get(id(label))
        if base is None:
            base = self._entries[id(label)] = self.num_inner
            edges = label.edges.copy()
            edges[edges[:, 2] >= 0, 2] += base
            self._held.append(label)
            self._edges.append(edges)
            self._counts.append(np.diff(label.offsets))
            covers = np.full(len(label.offsets) - 1, label.covers if label.covers & ANY_TEXT else 0, np.uint8)
            covers[0] = label.covers
            self._covers.append(covers)
            self.num_inner += len(label.offsets) - 1
        return base

    def special(self, token_id: int) -> int:
        """The inner state that reads the special token."""
        if token_id not in self.special_ids:
            self.special_ids.append(token_id)
            column = _BYTES + len(self.special_ids) - 1
            self._entries[-1 - token_id] = self.num_inner
            self._edges.append(np.array([[column, column, -1, 1]], np.int32))
            self._counts.append(np.ones(1, np.int32))
            self._covers.append(np.zeros(1, np.uint8))
            self.num_inner += 1
        return self._entries[-1 - token_id]

    def edges(self) -> Int32Array:
        """int32 [*, 4]; see `ByteDfa.edges`."""
        return np.concatenate([np.zeros((0, 4), np.int32), *self._edges])

    def covers(self) -> UInt8Array:
        """uint8 [A]; see `ByteNfa.inner_covers`."""
        return np.concatenate([np.zeros(0, np.uint8), *self._covers])

    def offsets(self) -> Int32Array:
        """int32 [A + 1]; rows of `edges`."""
        return np.cumsum(np.concatenate([np.zeros(1, np.int32), *self._counts]), dtype=np.int32)


def _byte_classes(edges: Int32Array) -> tuple[UInt8Array, Int32Array]:
    """Class of each byte (uint8 [256]) and the only byte of each class or -1 (int32 [C]): no edge separates bytes of one class."""
    begins = np.zeros(_BYTES + 1, np.int32)
    begins[0] = 1
    begins[edges[:, 0]] = 1
    begins[edges[:, 1] + 1] = 1
    byte_class = (np.cumsum(begins[:_BYTES]) - 1).astype(np.uint8)
    sizes = np.bincount(byte_class)
    firsts = np.flatnonzero(begins[:_BYTES])
    return byte_class, np.where(sizes == 1, firsts, -1).astype(np.int32)
