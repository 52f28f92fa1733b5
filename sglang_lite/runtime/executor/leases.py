"""One program's leases on the cache, one a branch: which prefixes it will need again and how soon; it knows no cache.

Next use is a place in one row of tickets that all programs draw from: the request that asks first is served first, so
its prefix is needed first. A branch that waits for its program has no ticket; of those, the one that rests longest is
taken to be needed last. A branch that has ended gives up its lease, but not while a branch of the same fork, or one
forked from it, is still to run: their shared prefix is in the tree under the leases of those that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.scheduler.messages import EndLease, SetNextUse

RESTING = 1 << 40
"""Later than any ticket."""


class BranchLeases:
    """Opens, moves and ends the leases of a program's branches by message."""

    def __init__(self, program: str, tickets: Iterator[int], send: Callable[[EndLease | SetNextUse], None]) -> None:
        self._program = program
        self._tickets = tickets
        self._send = send
        self._open: dict[int, Branch] = {}
        self._resting: set[int] = set()
        self._forks: dict[int, tuple[Branch, ...]] = {}
        self._children: dict[int, tuple[Branch, ...]] = {}

    def forked(self, children: tuple[Branch, ...]) -> None:
        """These branches share a prefix, with each other and with their parent."""
        if children and (parent := children[0].parent) is not None:
            self._children[parent.id] = children
        for child in children:
            self._forks[child.id] = children

    def needed(self, branch: Branch) -> tuple[str, int]:
        """The branch asks for a request now; returns (lease, next use)."""
        name, ticket = self._name(branch), next(self._tickets)
        if branch.id in self._open:
            self._send(SetNextUse(name, ticket))
        self._open[branch.id] = branch
        self._resting.discard(branch.id)
        return name, ticket

    def review(self) -> None:
        """After ops ended or came: leases of branches that rest or have ended say so."""
        for branch in list(self._open.values()):
            if not branch.is_idle:
                continue
            is_over = branch.is_ended or branch.failed is not None
            if (not is_over and branch.id in self._resting) or self._is_waited_for(branch):
                continue
            if is_over:
                self._end(branch)
            else:
                self._resting.add(branch.id)
                self._send(SetNextUse(self._name(branch), RESTING - next(self._tickets)))

    def _is_waited_for(self, branch: Branch) -> bool:
        """One that shares its prefix is still to run."""
        forks, children = self._forks.get(branch.id, ()), self._children.get(branch.id, ())
        return any(map(_is_to_run, forks)) or any(map(_is_to_run, children))

    def end(self) -> None:
        """The program is over."""
        for branch in list(self._open.values()):
            self._end(branch)

    def _end(self, branch: Branch) -> None:
        del self._open[branch.id]
        self._resting.discard(branch.id)
        self._send(EndLease(self._name(branch)))

    def _name(self, branch: Branch) -> str:
        return f"{self._program}/{branch.id}"


def _is_to_run(branch: Branch) -> bool:
    """It has asked for nothing yet and still may; one that was joined may have ops left."""
    return not branch.has_own_run and branch.failed is None and not (branch.is_ended and branch.is_idle)
