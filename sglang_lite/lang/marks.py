"""Places on a branch to which a program goes back: what a mark remembers, and which part of a history it takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A place on one branch of one run, made by `s.mark()`.

    `op`: its id. `branch`: the number of its branch, and `session` what runs it. `position`: how many items the history
    had. `role`, `scopes`, `template`: the open turn, the open variable scopes, and the variables of the chat template.
    """

    op: int
    session: object
    branch: int
    position: int
    role: str | None
    scopes: tuple[tuple[str, int], ...]
    template: Mapping[str, Any]


class Rewound:
    """The stretches of a history that were taken back: from the place of a mark to that of its rewind."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        """Positions from `start` to before `stop` are no part of the text any more."""
        self._ranges = [known for known in self._ranges if not start <= known[0]]
        self._ranges.append((start, stop))

    def has(self, position: int, until: int) -> bool:
        """True when `position` was taken back by a rewind that stands before `until`."""
        return any(start <= position < stop <= until for start, stop in self._ranges)
