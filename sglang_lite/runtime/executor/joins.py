"""The joins of one program that wait for their children, and those that children race for; it starts no requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sglang_lite.errors import CancelledError, SglangLiteError
from sglang_lite.race import Outcome, Race
from sglang_lite.request_tree import JoinOp, OpDone, OpFailed
from sglang_lite.runtime.executor.branch import Branch


class JoinOwner(Protocol):
    """What joins tell the program that they belong to."""

    def emit(self, event: OpDone | OpFailed) -> None:
        """Report an event."""
        ...

    def fail(self, branch: Branch, error: Exception) -> None:
        """The branch can do nothing more."""
        ...


@dataclass(slots=True)
class _Racing:
    """A race with the branch that waits for it, and of each child the branches that must end: its own and those below."""

    branch: Branch
    race: Race
    children: list[list[Branch]]


class Joins:
    """Joins that are not over. `vote_of(child id, name)`: the value of the last gen or select of that name there."""

    def __init__(
        self,
        owner: JoinOwner,
        branches: Mapping[int, Branch],
        vote_of: Callable[[int, str], str | None],
    ) -> None:
        self._owner = owner
        self._branches = branches
        self._vote_of = vote_of
        self._texts: list[tuple[Branch, JoinOp]] = []
        self._races: list[_Racing] = []
        self._joined: set[int] = set()

    def begin(self, branch: Branch, op: JoinOp) -> None:
        """Mode `gather` needs nothing of the children; `concat` and races make the branch wait."""
        self._joined.update(op.children)
        for child in op.children:
            self._branches[child].is_ended = True
        if op.first is not None or op.vote is not None:
            branch.running = op
            self._races.append(_Racing(branch, Race(op), [self.family(child) for child in op.children]))
        elif op.mode == "concat":
            branch.running = op
            self._texts.append((branch, op))
        else:
            self._owner.emit(OpDone(op.id))

    @property
    def has_races(self) -> bool:
        """Children race for something."""
        return bool(self._races)

    @property
    def has_waiting(self) -> bool:
        """A `concat` join waits for its children."""
        return bool(self._texts)

    def is_joined(self, branch: int) -> bool:
        """A join has taken the branch over."""
        return branch in self._joined

    def family(self, branch: int) -> list[Branch]:
        """The branch and all that were forked from it, parents first."""
        return [other for other in self._branches.values() if branch in other.path]

    def settle_texts(self) -> list[Branch]:
        """End every `concat` join whose children have run out of ops; returns the branches that may go on."""
        ready: list[Branch] = []
        waiting, self._texts = self._texts, []
        for branch, op in waiting:
            children = [self._branches[child] for child in op.children]
            if branch.running is not op:
                continue  # its branch has failed
            if not all(child.is_born and child.is_idle for child in children):
                self._texts.append((branch, op))
                continue
            branch.running = None
            failed = next((child.failed for child in children if child.failed is not None), None)
            if failed is not None:
                self._owner.emit(OpFailed(op.id, failed))
                self._owner.fail(branch, failed)
            else:
                text = "".join(part for child in children for part in child.text_since_fork)
                branch.add_text(text, literal=True)
                self._owner.emit(OpDone(op.id, text=text))
            ready.append(branch)
        return ready

    def settle_races(self) -> list[Branch]:
        """At the end of a step: take note of the children that ended in it, and end every race that is decided.

        Returns the branches that may go on.
        """
        ready: list[Branch] = []
        waiting, self._races = self._races, []
        for racing in waiting:
            if racing.branch.running is not racing.race.op:
                continue  # its branch has failed
            self._take_note(racing)
            try:
                outcome = racing.race.outcome()
            except SglangLiteError as error:
                self._end(racing, None)
                self._owner.emit(OpFailed(racing.race.op.id, error))
                self._owner.fail(racing.branch, error)
                ready.append(racing.branch)
                continue
            if outcome is None:
                self._races.append(racing)
                continue
            self._end(racing, outcome)
            self._owner.emit(OpDone(racing.race.op.id, value=outcome.value, meta=outcome.meta()))
            ready.append(racing.branch)
        return ready

    def _take_note(self, racing: _Racing) -> None:
        """Those that ended are told of in the order of their last steps; in one step: by index."""
        op, race = racing.race.op, racing.race
        ended: list[tuple[int, int, Exception | None]] = []
        for index, family in enumerate(racing.children):
            failed = next((b.failed for b in family if b.failed is not None and not b.is_dropped), None)
            if race.is_open(index) and (failed is not None or all(b.is_born and b.is_idle for b in family)):
                ended.append((max(b.last_step for b in family), index, failed))
        for _, index, failed in sorted(ended, key=lambda entry: entry[:2]):
            if failed is not None:
                race.fail(index, failed)
            else:
                race.finish(index, None if op.vote is None else self._vote_of(op.children[index], op.vote))

    def _end(self, racing: _Racing, outcome: Outcome | None) -> None:
        racing.branch.running = None
        winners = () if outcome is None else outcome.winners
        for index, family in enumerate(racing.children):
            if index in winners:
                continue
            for branch in family:
                if not branch.is_idle or not branch.is_born:
                    branch.is_dropped = branch.failed is None
                    self._owner.fail(
                        branch, CancelledError(f"join {racing.race.op.id} was decided without this branch")
                    )
