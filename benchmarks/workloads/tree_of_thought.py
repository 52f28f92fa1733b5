"""W6: a tree of thoughts, every node a gen after its parent's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import sglang_lite as sgl
from benchmarks.texts import passage
from benchmarks.workload import Q4_0, Q4_1
from benchmarks.workloads.programs import ProgramWorkload

_WAYS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth")


@sgl.function(lazy=True)
def think(s: sgl.ProgramState, task: str, branch: int, depth: int, tokens: int) -> None:
    """The task, then `depth` levels of thoughts, `branch` after each."""
    s += task
    grow(s, branch, depth, tokens)


def grow(s: sgl.ProgramState, branch: int, depth: int, tokens: int) -> None:
    """Thoughts below one state."""
    if depth == 0:
        return
    for number, child in enumerate(s.fork(branch)):
        child += f"\n{_WAYS[number]} thought:"
        child += sgl.gen("thought", max_tokens=tokens, temperature=0.0, ignore_eos=True)
        grow(child, branch, depth - 1, tokens)


@dataclass(frozen=True)
class TreeOfThought(ProgramWorkload):
    """Nodes a second. A task of `sentences` comes to some 512 tokens."""

    code: ClassVar[str] = "W6"
    title: ClassVar[str] = "tree of thought"
    unit: ClassVar[str] = "nodes/s"
    limit_s: ClassVar[float] = 230.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (3.0, 8.0), Q4_0: (3.0, 8.0)}

    sentences: int = 34
    branch: int = 4
    depth: int = 3
    tokens: int = 24

    def small(self) -> Self:
        """Without the last level."""
        return replace(self, depth=2)

    def tiny(self) -> Self:
        """Two levels of two."""
        return replace(self, sentences=2, branch=2, depth=2, tokens=2)

    @property
    def function(self) -> Any:
        """One tree."""
        return think

    @property
    def amount(self) -> float:
        """Nodes that are generated."""
        return sum(self.branch**level for level in range(1, self.depth + 1))

    def rows(self, seed: int) -> list[dict[str, Any]]:
        """One."""
        task = f"Task {seed}. {passage((self.code, seed), self.sentences)}\nWhat follows from this?"
        return [{"task": task, "branch": self.branch, "depth": self.depth, "tokens": self.tokens}]
