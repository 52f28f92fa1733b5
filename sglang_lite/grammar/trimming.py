"""The live part of a graph, as arrays: states on the way of a whole text, without those that only stand for another one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sglang_lite.grammar.graph import Graph
from sglang_lite.grammar.nfa import Int32Array, UInt8Array
from sglang_lite.grammar.spread_kernels import distinct, find_live, kept_arrows, stand_ins


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
        arrows = np.concatenate([empty, edges, specials, refs])
        plain = len(arrows) - len(refs)
        arrows[:plain, 1] = arrows[:plain, 2]
        arrows[plain:, 1] = entries[refs[:, 1]]
        live = find_live(arrows, start, exits, size)
        none = np.empty(0, np.int32)
        empty, edges, specials = (kept_arrows(kind, live, none) for kind in (empty, edges, specials))
        refs = kept_arrows(refs, live, entries) if len(refs) else refs
        is_end = np.zeros(size, np.uint8)
        is_end[exits] = 1
        busy = is_end.copy()
        for kind in (edges, refs, specials):
            busy[kind[:, 0]] = 1
        empty = distinct(empty, size)
        stands_for = stand_ins(empty, busy)
        kept = (live == 1) & (stands_for == np.arange(size))
        number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)[stands_for]
        self.num_states = int(np.count_nonzero(kept))
        self.start = int(number[start]) if live[start] else -1
        empty = empty[kept[empty[:, 0]]]
        self.empty, self.edges, self.refs, self.specials = (
            _renumbered(kind, number) for kind in (empty, edges, refs, specials)
        )
        self.empty = distinct(self.empty, self.num_states)
        self.ends: UInt8Array = is_end[kept]
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


def _renumbered(arrows: Int32Array, number: Int32Array) -> Int32Array:
    found = arrows.copy()
    found[:, 0] = number[arrows[:, 0]]
    found[:, 2] = number[arrows[:, 2]]
    return found
