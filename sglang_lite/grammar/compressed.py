"""The compressed finite state machine of a grammar as plain data: runs of singular edges are one edge."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_lite.grammar.charset import Range
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import DEAD
from sglang_lite.grammar.tables import LazyTables


@dataclass(frozen=True, slots=True)
class CompressedEdge:
    """One step: any byte of the ranges `first`, then exactly the bytes `run`."""

    source: int
    target: int
    first: tuple[Range, ...]
    run: bytes


@dataclass(frozen=True, slots=True)
class CompressedFsm:
    """A whole automaton over bytes; `start` is -1 and all else empty if no text matches.

    Special tokens are left out. `states` are those left between edges, in order of discovery; `num_states` counts all deterministic states, those inside runs included.
    """

    start: int
    states: tuple[int, ...]
    accepting: frozenset[int]
    edges: tuple[CompressedEdge, ...]
    num_states: int


def compress(tables: LazyTables, *, max_states: int) -> CompressedFsm:
    """Explore all states of `tables` and merge each state with exactly one outgoing byte, not accepting, into the edges through it.

    Raises:
        GrammarTooLargeError: there are more than `max_states` states.
    """
    if tables.start == DEAD:
        return CompressedFsm(DEAD, (), frozenset(), (), 0)
    ranges = _class_ranges(tables)
    everything = {tables.start}
    kept = {tables.start: None}
    edges: list[CompressedEdge] = []
    waiting = [tables.start]
    while waiting:
        source = waiting.pop()
        by_target: dict[int, list[Range]] = {}
        for byte_range, target in zip(
            ranges, tables.row(source), strict=False
        ):  # special tokens come last and are left out
            if target != DEAD:
                by_target.setdefault(target, []).append(byte_range)
        for target, first in by_target.items():
            run, end = tables.forced(target)
            everything.update(_along(tables, target, len(run)))
            edges.append(CompressedEdge(source, end, _joined(first), run))
            if end not in kept:
                kept[end] = None
                waiting.append(end)
            if len(everything) > max_states:
                raise GrammarTooLargeError(f"drawing a grammar: more than {max_states} states; raise max_states")
    accepting = frozenset(state for state in kept if tables.is_accepting(state))
    return CompressedFsm(tables.start, tuple(kept), accepting, tuple(edges), len(everything))


def _along(tables: LazyTables, state: int, length: int) -> list[int]:
    """`state` and the `length` states behind it, each of which has one next state."""
    states = [state]
    for _ in range(length):
        states.append(max(tables.row(states[-1])))
    return states


def _class_ranges(tables: LazyTables) -> list[Range]:
    """The bytes of each class, which are always neighbours."""
    ranges: list[Range] = []
    for byte, byte_class in enumerate(tables.nfa.byte_class.tolist()):
        if byte_class == len(ranges):
            ranges.append((byte, byte))
        else:
            ranges[byte_class] = (ranges[byte_class][0], byte)
    return ranges


def _joined(ranges: list[Range]) -> tuple[Range, ...]:
    joined = ranges[:1]
    for low, high in ranges[1:]:
        if joined[-1][1] + 1 == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)
