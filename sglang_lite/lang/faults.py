"""What went wrong in a session, in order, and which branches were given up on purpose."""

from __future__ import annotations

from collections.abc import Iterable


class Faults:
    """Errors of ops by branch. Not locked: its owner does that. `branches`: those that can do nothing more, and why."""

    def __init__(self) -> None:
        self.branches: dict[int, Exception] = {}
        self._errors: list[tuple[int | None, Exception]] = []
        self._excused: set[int] = set()

    def note(self, branch: int | None, error: Exception) -> None:
        """An op of `branch` (None: the program) ended by `error`."""
        self._errors.append((branch, error))

    def excuse(self, branches: Iterable[int]) -> None:
        """What fails on these branches, also before this call, is no fault of the program: a race or a rewind ends them."""
        self._excused.update(branches)

    @property
    def first(self) -> Exception | None:
        """The first error that counts."""
        return next((error for branch, error in self._errors if branch not in self._excused), None)
