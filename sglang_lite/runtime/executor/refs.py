"""The results of one program's ops that others refer to, and the ops that wait for one."""

from __future__ import annotations

from typing import Protocol

from sglang_lite.request_tree import OpDone, OpFailed, RefOp
from sglang_lite.runtime.executor.branch import Branch


class RefOwner(Protocol):
    """What refs tell the program that they belong to."""

    def emit(self, event: OpDone | OpFailed) -> None:
        """Report an event."""
        ...

    def fail(self, branch: Branch, error: Exception) -> None:
        """The branch can do nothing more."""
        ...


class Refs:
    """Results by op id: the value where it is a text, else the text that the op added, or its error."""

    def __init__(self, owner: RefOwner) -> None:
        self._owner = owner
        self._waiting: list[tuple[Branch, RefOp]] = []
        self._results: dict[int, str | Exception] = {}

    @property
    def has_waiting(self) -> bool:
        """An op waits for its target."""
        return bool(self._waiting)

    def take(self, event: OpDone | OpFailed) -> None:
        """Keep the result of an op that others may refer to."""
        if isinstance(event, OpFailed):
            self._results[event.op] = event.error
        else:
            self._results[event.op] = event.value if isinstance(event.value, str) else event.text

    def text_of(self, op: int) -> str | None:
        """The result, where it is one."""
        result = self._results.get(op)
        return result if isinstance(result, str) else None

    def begin(self, branch: Branch, op: RefOp) -> None:
        """Put the result of the op that `op` refers to on the branch, which waits for it where it must."""
        if isinstance(result := self._results.get(op.target), str):
            self._put(branch, op, result)
            return
        branch.running = op
        self._waiting.append((branch, op))

    def settle(self) -> list[Branch]:
        """End every op whose target is over; returns the branches that may go on."""
        ready: list[Branch] = []
        waiting, self._waiting = self._waiting, []
        for branch, op in waiting:
            if branch.running is not op:
                continue  # its branch has failed
            result = self._results.get(op.target)
            if result is None:
                self._waiting.append((branch, op))
                continue
            branch.running = None
            if isinstance(result, str):
                self._put(branch, op, result)
            else:
                self._owner.emit(OpFailed(op.id, result))
                self._owner.fail(branch, result)
            ready.append(branch)
        return ready

    def _put(self, branch: Branch, op: RefOp, result: str) -> None:
        text = op.text_of(result)
        branch.add_text(text, literal=True)
        self._owner.emit(OpDone(op.id, text=text))
