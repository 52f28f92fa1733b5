"""Syntax to a byte automaton: rules side by side, trimmed to live states, laid out as arrays; knows no tokens.

An edge between two states reads one whole character, or a text of an intersection or a difference. How that is spelled in bytes is
kept apart, once for each, in the inner states of its `ByteDfa`; an edge calls it and names the state to return to. So a thousand
copies of a character class are a thousand edges, and bounded repeats are linear in their bound.

Every state of the result lies on a path from the start to the end of a text, so a set of states is alive exactly when it is not empty.
"""

from __future__ import annotations

import numpy as np

from sglang_lite.grammar.algebra import DEFAULT_MAX_PRODUCT_STATES, difference, intersection
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.facts import size_of
from sglang_lite.grammar.graph import Graph
from sglang_lite.grammar.left_recursion import refuse_left_recursion
from sglang_lite.grammar.nfa import ANY_TEXT, STATE_BITS, ByteDfa, ByteNfa, Int32Array, UInt8Array
from sglang_lite.grammar.rules import RulePlan, plan_rules
from sglang_lite.grammar.spread_kernels import by_source
from sglang_lite.grammar.syntax import Both, Grammar, Node, Without, both, without
from sglang_lite.grammar.trimming import Trimmed

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
                _build(RulePlan(side, self._rules, {}, {}), self._max_states, self) for side in (node.left, node.right)
            )
            self._made[node] = combine(left, right, max_states=self._max_product_states)
        return self._made[node]


def _build(plan: RulePlan, max_states: int, combine: _Combiner) -> ByteNfa:
    sizes = dict(plan.sizes)

    def inlined(name: str) -> int:
        if name not in plan.inlined:
            return 1
        if name not in sizes:
            sizes[name] = size_of(plan.inlined[name], inlined)
        return sizes[name]

    called = sum(sizes[name] if name in sizes else size_of(node, inlined) for name, node in plan.called.items())
    if size_of(plan.start, inlined) + called > max_states:
        raise GrammarTooLargeError(
            f"building the automaton: it needs more than {max_states} states; lower the bounds of the repeats or raise max_states"
        )
    graph = Graph(plan.inlined, combine)
    start, accept = graph.add_part(plan.start)
    borders = {name: graph.add_part(node) for name, node in plan.called.items()}
    graph.draw_copies()
    return _pack(Trimmed(graph, start, accept, borders))


def _pack(trimmed: Trimmed) -> ByteNfa:
    """Lay states and labels side by side, and find the byte classes."""
    if trimmed.live_rules:
        refuse_left_recursion(trimmed)
    labels = _Labels()
    edges, specials, refs = trimmed.edges, trimmed.specials, trimmed.refs
    begins = np.full(len(trimmed.graph.labels) + 1, -1, np.int32)
    for index in dict.fromkeys(edges[:, 1].tolist()):
        begins[index] = labels.entry(trimmed.graph.labels[index])
    special_begins = np.array([labels.special(token) for token in specials[:, 1].tolist()], np.int32)
    num_states = trimmed.num_states
    if max(labels.num_inner, num_states) >= 1 << STATE_BITS:
        raise GrammarTooLargeError(
            f"building the automaton: {num_states} states and {labels.num_inner} inner states; at most {1 << STATE_BITS} can be numbered"
        )
    calls = np.concatenate([edges, specials])
    calls[: len(edges), 1] = begins[edges[:, 1]]
    calls[len(edges) :, 1] = special_begins
    empty_offsets, empty = by_source(trimmed.empty, num_states)
    call_offsets, calls = by_source(calls, num_states)
    ref_offsets, refs = by_source(refs, num_states)
    inner, inner_offsets, covers = labels.laid_out()
    byte_class, class_byte = _byte_classes(inner[inner[:, 0] < _BYTES])
    columns = np.concatenate([byte_class, len(class_byte) + np.arange(len(labels.special_ids))]).astype(np.int32)
    return ByteNfa(
        empty_offsets=empty_offsets,
        empty_targets=np.ascontiguousarray(empty[:, 2]),
        call_offsets=call_offsets,
        call_inner=np.ascontiguousarray(calls[:, 1]),
        call_return=np.ascontiguousarray(calls[:, 2]),
        ref_offsets=ref_offsets,
        ref_entry=trimmed.entries[refs[:, 1]],
        ref_return=np.where(trimmed.bare_ends[refs[:, 2]], -1, refs[:, 2]).astype(np.int32),
        pops=trimmed.ends,
        inner_offsets=inner_offsets,
        inner_low=columns[inner[:, 0]],
        inner_high=columns[inner[:, 1]],
        inner_next=np.ascontiguousarray(inner[:, 2]),
        inner_exits=inner[:, 3].astype(np.uint8),
        inner_covers=covers,
        byte_class=byte_class,
        class_byte=np.concatenate([class_byte, np.full(len(labels.special_ids), -1, np.int32)]),
        special_ids=np.array(labels.special_ids, np.int32),
        start=trimmed.start,
    )


class _Labels:
    """The inner states of all labels in use, side by side; special tokens stand as bytes from 256 up."""

    def __init__(self) -> None:
        self.num_inner = 0
        self.special_ids: list[int] = []
        self._entries: dict[int, int] = {}
        self._begins: list[int] = []
        self._held: list[ByteDfa] = []  # identities are keys, so the objects must live

    def entry(self, label: ByteDfa) -> int:
        """The inner state where `label` begins, numbered when it is first used."""
        base = self._entries.get(id(label))
        return self._add(id(label), label) if base is None else base

    def special(self, token_id: int) -> int:
        """The inner state that reads the special token."""
        if token_id not in self.special_ids:
            self.special_ids.append(token_id)
            column = _BYTES + len(self.special_ids) - 1
            edges = np.array([[column, column, -1, 1]], np.int32)
            self._add(-1 - token_id, ByteDfa(np.array([0, 1], np.int32), edges, accepts_empty=False, covers=0))
        return self._entries[-1 - token_id]

    def _add(self, key: int, label: ByteDfa) -> int:
        base = self._entries[key] = self.num_inner
        self._begins.append(base)
        self._held.append(label)
        self.num_inner += len(label.offsets) - 1
        return base

    def laid_out(self) -> tuple[Int32Array, Int32Array, UInt8Array]:
        """Edges, int32 [*, 4] (see `ByteDfa.edges`), their rows, int32 [A + 1], and `ByteNfa.inner_covers`, uint8 [A]."""
        if not self._held:
            return np.zeros((0, 4), np.int32), np.zeros(1, np.int32), np.zeros(0, np.uint8)
        begins = np.array(self._begins, np.int32)
        edges = np.concatenate([label.edges for label in self._held])
        numbers = np.array([len(label.edges) for label in self._held], np.int32)
        edges[:, 2] += np.repeat(begins, numbers) * (edges[:, 2] >= 0)
        ends = np.cumsum(numbers, dtype=np.int32)
        sizes = np.diff(begins, append=np.int32(self.num_inner))
        offsets = np.concatenate([label.offsets[1:] for label in self._held]) + np.repeat(ends - numbers, sizes)
        covers = np.zeros(self.num_inner, np.uint8)
        for base, label in zip(self._begins, self._held, strict=True):
            if label.covers:
                reach = len(label.offsets) - 1 if label.covers & ANY_TEXT else 1
                covers[base : base + reach] = label.covers
        return edges, np.concatenate([np.zeros(1, np.int32), offsets.astype(np.int32)]), covers


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
