"""Scoring of choices: their prefix tree, what its rows compute, and the scores; it knows no batch and no memory.

Every edge of the tree is one row: it computes the KV of its tokens and asks for the log-probabilities of the tokens
that follow. The row before it (its parent's, or the prompt's) asks for its first token. A leaf's last token
is followed by nothing, so it needs no KV; an edge that is one such token needs no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_lite.runtime.memory.kv import KvHold
from sglang_lite.runtime.scheduler.plan import LogprobTarget, TargetResult

Choices = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class ScoreEdge:
    """A run of choice tokens that starts `start` tokens after the prompt. `parent`: index of the edge before it."""

    parent: int | None
    start: int
    tokens: tuple[int, ...]
    children: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])

    @property
    def row_len(self) -> int:
        """Tokens whose KV its row computes; 0: no row."""
        return len(self.tokens) - (0 if self.children else 1)


class _Group(NamedTuple):
    """Sorted choices that agree in one token more than `depth`, to become edges below `parent`."""

    choices: Choices
    depth: int
    parent: int | None


def _by_token(choices: Choices, depth: int) -> list[Choices]:
    """Sorted choices cut into runs with equal token at `depth`."""
    starts = [i for i in range(len(choices)) if not i or choices[i][depth] != choices[i - 1][depth]]
    stops = [*starts[1:], len(choices)]
    return [choices[start:stop] for start, stop in zip(starts, stops, strict=bool(choices))]


class ScoreTree:
    """The prefix tree of choices as edges, parents before children, depth first.

    No edge's row is longer than `max_row` tokens: a longer run is cut into several edges.
    """

    def __init__(self, choices: Choices, max_row: int | None = None) -> None:
        self.edges: list[ScoreEdge] = []
        self.roots: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}
        self._grow(sorted(set(choices)), max_row)
        self._last_edges = [self._ends[choice] for choice in choices]

    def first_tokens(self, edge: int | None) -> tuple[int, ...]:
        """The first tokens of the edges after `edge` (None: after the prompt)."""
        following = self.roots if edge is None else self.edges[edge].children
        return tuple(self.edges[i].tokens[0] for i in following)

    def targets(self, edge: int, offset: int) -> tuple[LogprobTarget, ...]:
        """What the edge's row asks for; its first token is the row's query `offset` (before it: recomputed tokens)."""
        me = self.edges[edge]
        inside = tuple(LogprobTarget(offset + i, (token,)) for i, token in enumerate(me.tokens[1:]))
        if not me.children:
            return inside
        return (*inside, LogprobTarget(offset + me.row_len - 1, self.first_tokens(edge)))

    def store(self, edge: int | None, results: Sequence[TargetResult]) -> None:
        """Keep the answers to `targets(edge)`, or to the prompt's one target (`edge` None)."""
        if edge is not None:
            inside = len(self.edges[edge].tokens) - 1
            self.edges[edge].logprobs.extend(result.logprobs[0] for result in results[:inside])
            results = results[inside:]
        following = self.roots if edge is None else self.edges[edge].children
        for result in results:
            for child, logprob in zip(following, result.logprobs, strict=True):
                self.edges[child].logprobs.append(logprob)

    def scores(self) -> tuple[tuple[float, ...], ...]:
        """For each choice the log-probabilities of its tokens."""
        return tuple(self._path_logprobs(edge) for edge in self._last_edges)

    def forget(self) -> None:
        """Drop every answer: the prompt is computed anew."""
        for edge in self.edges:
            edge.logprobs.clear()

    def path(self, edge: int) -> list[int]:
        """The edges from a root down to `edge`."""
        path = [edge]
        while (parent := self.edges[path[-1]].parent) is not None:
            path.append(parent)
        return path[::-1]

    def _path_logprobs(self, edge: int) -> tuple[float, ...]:
        return tuple(logprob for i in self.path(edge) for logprob in self.edges[i].logprobs)

    def _grow(self, choices: Choices, max_row: int | None) -> None:
        """Add all edges; `choices` are sorted and distinct."""
        stack: list[_Group] = [_Group(group, 0, None) for group in reversed(_by_token(choices, 0))]
        while stack:
            group, depth, parent = stack.pop()
            first, last = group[0], group[-1]
            # Sorted: what the first and the last have in common, all have; and only the first can end there.
            end = depth + 1
            while end < min(len(first), len(last)) and first[end] == last[end]:
                end += 1
            is_end = len(first) == end
            row_len = end - depth - (1 if is_end and len(group) == 1 else 0)
            if max_row is not None and row_len > max_row:
                end, is_end = depth + max_row, False
            index = self._add(parent, depth, first[depth:end])
            if is_end:
                self._ends[first] = index
                group = group[1:]
            stack.extend(_Group(below, end, index) for below in reversed(_by_token(group, end)))

    def _add(self, parent: int | None, start: int, tokens: tuple[int, ...]) -> int:
        index = len(self.edges)
        self.edges.append(ScoreEdge(parent, start, tokens))
        (self.roots if parent is None else self.edges[parent].children).append(index)
        return index


class ScoreState:
    """How far one request's choices are scored.

    Attributes:
        pending: edges that have had no row yet, parents first.
        in_flight: edges whose rows are not committed yet.
        holds: what the edges that had a row hold of the memory; the prompt's hold outlives them.

    """

    def __init__(self, choices: Choices, max_row: int | None) -> None:
        self.tree = ScoreTree(choices, max_row)
        self.pending: list[int] = []
        self.in_flight: set[int] = set()
        self.holds: dict[int, KvHold] = {}
        self.restart()

    @property
    def is_done(self) -> bool:
        """Every edge's row is committed."""
        return not self.pending and not self.in_flight

    @property
    def idle_edges(self) -> list[int]:
        """Edges that hold memory and have nothing to come at or below them, children before parents."""
        needed = {i for edge in (*self.pending, *self.in_flight) for i in self.tree.path(edge)}
        return [edge for edge in sorted(self.holds, reverse=True) if edge not in needed]

    def restart(self) -> None:
        """Nothing is scored; nothing may be held."""
        assert not self.holds, f"scoring starts anew while the edges {sorted(self.holds)} hold memory"
        self.tree.forget()
        self.in_flight.clear()
        self.pending = [i for i, edge in enumerate(self.tree.edges) if edge.row_len]
