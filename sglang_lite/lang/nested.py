"""The runs inside the body of a run: their number, from which their seeds follow, and those that are still there."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakSet

from sglang_lite.lang.seeds import nested_seed

RunT = TypeVar("RunT")


class NestedRuns(Generic[RunT]):
    """Runs inside a run of seed `seed`. Not locked: its owner does that."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._count = 0
        self._runs: WeakSet[RunT] = WeakSet()

    def next_seed(self) -> int | None:
        """The seed of the next run; None where the outer one has none."""
        number, self._count = self._count, self._count + 1
        return nested_seed(self._seed, number)

    def add(self, run: RunT) -> None:
        """Know a run until nobody else does."""
        self._runs.add(run)

    def alive(self) -> list[RunT]:
        """The runs that somebody still holds."""
        return list(self._runs)
