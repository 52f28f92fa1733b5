"""What a backend waits for the program to answer: scores to decide on, held results to judge; it sends nothing."""

from __future__ import annotations

from sglang_lite.lang.choices import ChoicesSamplingMethod


class Questions:
    """The ops of one program whose end needs an answer. The session's lock guards it.

    `undecided`: selects with a method of the program. `held`: gens with `hold`. `refused`: the errors of gens that were
    refused, by what the backend was told: it fails them, and what comes after them, with that.
    """

    def __init__(self) -> None:
        self.undecided: dict[int, ChoicesSamplingMethod] = {}
        self.held: set[int] = set()
        self._refused: dict[str, Exception] = {}

    def __len__(self) -> int:
        return len(self.undecided) + len(self.held)

    def forget(self, op: int) -> None:
        """The op has ended."""
        self.undecided.pop(op, None)
        self.held.discard(op)

    def refuse(self, message: str, error: Exception) -> None:
        """A gen is refused with `message` because of `error`."""
        self._refused[message] = error

    def cause_of(self, error: Exception) -> Exception:
        """Why a gen was refused, where a backend says that it was; any other error as it is."""
        return self._refused.get(str(error), error)
