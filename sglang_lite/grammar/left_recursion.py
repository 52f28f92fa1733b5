"""Finds rules that enter themselves again before a byte is read, which would make stacks without end; knows states, not syntax."""

from __future__ import annotations

import numpy as np

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.nfa import Int32Array
from sglang_lite.grammar.rules import components
from sglang_lite.grammar.spread_kernels import by_source, enter_first
from sglang_lite.grammar.trimming import Trimmed

_FIRST_ROOM = 1024


def refuse_left_recursion(trimmed: Trimmed) -> None:
    """Raise if a rule comes back to itself without a byte, its own end aside.

    A rule that returns to itself as the last thing it does needs no stack and is no fault.

    Raises:
        UnsupportedGrammarError: naming the rules of the circle.
    """
    names = list(trimmed.graph.names)
    found = _entered_first(trimmed, names)
    edges: dict[str, set[str]] = {name: set() for name in trimmed.live_rules}
    inside: set[tuple[str, str]] = set()
    for rule, inner, behind in found.tolist():
        edges[names[rule]].add(names[inner])
        if not trimmed.bare_ends[behind]:
            inside.add((names[rule], names[inner]))
    for group in components(edges):
        if len(group) > 1 or group[0] in edges[group[0]]:
            members = set(group)
            if any((name, inner) in inside for name in group for inner in edges[name] & members):
                circle = " -> ".join([*group[::-1], group[-1]])
                raise UnsupportedGrammarError(
                    f"building a grammar: left recursion ({circle}): a rule begins with itself before any character is read; "
                    "write it as a repetition"
                )


def _entered_first(trimmed: Trimmed, names: list[str]) -> Int32Array:
    """int32 [*, 3]: (rule, rule entered before a byte, state behind it), rules by their place in `names`."""
    borders = np.array([trimmed.live_rules.get(name, (-1, -1)) for name in names], np.int32)
    num_states = len(trimmed.bare_ends)
    empty_offsets, empty = by_source(trimmed.empty, num_states)
    ref_offsets, refs = by_source(trimmed.refs, num_states)
    empty_targets, entered = np.ascontiguousarray(empty[:, 2]), np.ascontiguousarray(refs[:, 1:])
    room = _FIRST_ROOM
    while True:
        found = np.empty((room, 3), np.int32)
        nullable = np.zeros(len(names), np.uint8)
        count = enter_first(empty_offsets, empty_targets, ref_offsets, entered, borders, nullable, found)
        if count >= 0:
            return found[:count]
        room *= 4
