"""The live part of a graph, as arrays: states on the way of a whole text, without those that only stand for another one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sglang_lite.grammar.graph import Graph
from sglang_lite.grammar.nfa import Int32Array, UInt8Array
from sglang_lite.grammar.spread_kernels import spread_back, spread_on


class Trimmed:
    """A graph reduced to its live states (N), numbered anew.

    A state is live if it lies on a path of a whole text; a reference is on one if its rule has a text and what follows it has
    one. States with one empty edge and nothing else are replaced by the state behind it.

    Attributes:
        graph: where labels and names are.
        num_states, start: N; the first state, -1 if there is no text at all.
        empty, edges, refs, specials: int32 [*, 3]; (source, what the edge carries, target).
        ends: uint8 [N]; where a rule ends.
        bare_ends: bool [N]; where a rule ends and has no way on.
        entries: int32 [rules]; the first state of each rule by its number in `graph.names`, -1 if the rule is gone.
        live_rules: name -> (first, last state) of the rules that are left and refer to something or are referred to.
    """

    def __init__(self, graph: Graph, start: int, accept: int, borders: Mapping[str, tuple[int, int]]) -> None:
        self.graph = graph
        size = graph.num_states
        entries = np.array([borders[name][0] for name in graph.names], np.int32)
        exits = np.array([accept, *(last for _, last in borders.values())], np.int32)
        empty, edges, refs, specials = (kind.rows() for kind in (graph.empty, graph.edges, graph.refs, graph.specials))
        arrows = np.concatenate(
            [
                *(kind[:, [0, 2, 2]] for kind in (empty, edges, specials)),
                np.stack([refs[:, 0], refs[:, 2], entries[refs[:, 1]]], axis=1),
            ]
        )
        live = _live(np.ascontiguousarray(arrows, np.int32), start, exits, size)
        is_end = np.zeros(size, np.bool_)
        is_end[exits] = True
        empty, edges, specials = (
            kind[(live[kind[:, 0]] & live[kind[:, 2]]).astype(np.bool_)] for kind in (empty, edges, specials)
        )
        refs = refs[(live[refs[:, 0]] & live[refs[:, 2]] & live[entries[refs[:, 1]]]).astype(np.bool_)]
        busy = is_end.copy()
        for kind in (edges, refs, specials):
            busy[kind[:, 0]] = True
        empty = _distinct(empty, size)
        stands_for = _stand_ins(empty, busy, size)
        kept = (live == 1) & (stands_for == np.arange(size))
        number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)[stands_for]
        self.num_states = int(np.count_nonzero(kept))
        self.start = int(number[start]) if live[start] else -1
        empty = empty[kept[empty[:, 0]]]
        self.empty, self.edges, self.refs, self.specials = (
            np.stack([number[kind[:, 0]], kind[:, 1], number[kind[:, 2]]], axis=1)
            for kind in (empty, edges, refs, specials)
        )
        self.empty = _distinct(self.empty, self.num_states)
        self.ends: UInt8Array = is_end[kept].astype(np.uint8)
        has_way_on = np.zeros(self.num_states, np.bool_)
        for kind in (self.empty, self.edges, self.refs, self.specials):
            has_way_on[kind[:, 0]] = True
        self.bare_ends = (self.ends == 1) & ~has_way_on
        self.entries = np.where(live[entries] == 1, number[entries], -1).astype(np.int32)
        self.live_rules = {
            name: (int(number[first]), int(number[last]))
            for name, (first, last) in borders.items()
            if name in graph.names and live[first]
        }


def _live(arrows: Int32Array, start: int, exits: Int32Array, size: int) -> UInt8Array:
    """uint8 [size]; `arrows` are (source, target, another state that must live too)."""
    productive = np.zeros(size, np.uint8)
    productive[exits] = 1
    spread_back(arrows, productive)
    live = np.zeros(size, np.uint8)
    live[start] = productive[start]
    spread_on(arrows, productive, live)
    return live


def _distinct(empty: Int32Array, size: int) -> Int32Array:
    """Empty edges once each, none from a state to itself."""
    empty = empty[empty[:, 0] != empty[:, 2]]
    _, first = np.unique(empty[:, 0].astype(np.int64) * size + empty[:, 2], return_index=True)
    return empty[np.sort(first)]


def _stand_ins(empty: Int32Array, busy: np.ndarray, size: int) -> Int32Array:
    """int32 [size]; for each state the one behind its only empty edge, as far as that goes, or itself."""
    single = (np.bincount(empty[:, 0], minlength=size) == 1) & ~busy
    behind = np.arange(size, dtype=np.int32)
    only = empty[single[empty[:, 0]]]
    behind[only[:, 0]] = only[:, 2]
    while not np.array_equal(following := behind[behind], behind):
        behind = following
    return behind
