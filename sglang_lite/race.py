"""Who wins a join with `first` or `vote`: a rule over children as they end; it knows no branches and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sglang_lite.errors import ExecutionError, ProgramError
from sglang_lite.ops import GenOp, JoinOp, Op, SelectOp

__all__ = ["Outcome", "Race", "voting_op"]


def voting_op(ops: Sequence[Op], name: str) -> int | None:
    """The id of the last gen or select called `name` among a child's ops: its value is the child's vote."""
    found = [op.id for op in ops if isinstance(op, GenOp | SelectOp) and op.name == name]
    return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`winners`: indices of children in the order of finishing; `value`, `votes`: of a vote."""

    winners: tuple[int, ...]
    value: str | None = None
    votes: dict[str, int] | None = None

    def meta(self) -> dict[str, Any]:
        """As `OpDone.meta` of the join."""
        return {"winners": list(self.winners)} | ({} if self.votes is None else {"votes": self.votes})


class Race:
    """The children of one `JoinOp`, told of in the order in which they end (in one step: by index).

    A vote is decided once no other value can overtake the leading one. Of values with equally many votes the one that was
    voted for first leads.
    """

    def __init__(self, op: JoinOp) -> None:
        self.op = op
        self._values: dict[int, str | None] = {}
        self._errors: dict[int, Exception] = {}

    def is_open(self, index: int) -> bool:
        """Child number `index` has not ended."""
        return index not in self._values and index not in self._errors

    def finish(self, index: int, value: str | None) -> None:
        """A child has done all its ops; `value` is its vote (None where it has none)."""
        if self.op.vote is not None and value is None:
            self.fail(
                index,
                ProgramError(
                    f"voting on {self.op.vote!r}: child {index} has no gen or select of that name, expected one"
                ),
            )
        else:
            self._values[index] = value

    def fail(self, index: int, error: Exception) -> None:
        """A child has ended by an error."""
        self._errors[index] = error

    def outcome(self) -> Outcome | None:
        """Who has won; None: that is not decided yet.

        Raises:
            ExecutionError: too few children can still win; its cause is the first child's error.
        """
        num_open = len(self.op.children) - len(self._values) - len(self._errors)
        wanted = 1 if self.op.first is None else self.op.first
        if len(self._values) + num_open < wanted:
            raise self._lost(wanted, num_open)
        if self.op.first is not None:
            return Outcome(tuple(self._values)[:wanted]) if len(self._values) >= wanted else None
        return self._vote(num_open)

    def _vote(self, num_open: int) -> Outcome | None:
        votes: dict[str, int] = {}
        for value in self._values.values():
            assert value is not None, "a child without a vote has failed"
            votes[value] = votes.get(value, 0) + 1
        if not votes:
            return None
        ranked = list(votes)  # by first vote
        leading = max(ranked, key=lambda value: votes[value])
        for value in ranked:
            reach = votes[value] + num_open
            is_earlier = ranked.index(value) < ranked.index(leading)
            if value != leading and (reach > votes[leading] or (is_earlier and reach == votes[leading])):
                return None
        if num_open > votes[leading]:
            return None
        winners = tuple(index for index, value in self._values.items() if value == leading)
        return Outcome(winners, leading, votes)

    def _lost(self, wanted: int, num_open: int) -> ExecutionError:
        index, cause = next(iter(self._errors.items()))
        rule = f"vote={self.op.vote!r}" if self.op.first is None else f"first={wanted}"
        error = ExecutionError(
            f"joining {len(self.op.children)} states with {rule}: {len(self._errors)} failed and only "
            f"{len(self._values) + num_open} can still win; state {index} failed with {type(cause).__name__}: {cause}"
        )
        error.__cause__ = cause
        return error
