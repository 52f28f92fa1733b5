"""A program's op log: what was asked and what came of it, and from it the ops that make a new server go on."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.request_tree import (
    DecideOp,
    Event,
    GenOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    RefOp,
    SelectOp,
    TextOp,
)


class OpLog:
    """Ops in order of appending and their ends. Not locked: its owner does that."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._done: dict[int, OpDone] = {}
        self._failed: set[int] = set()
        self._num_streamed: dict[int, int] = {}
        """Characters of each op's text that were handed on in pieces."""
        self._skip: dict[int, int] = {}
        """Characters of each op's pieces that a new server sends again."""
        self._scored: set[int] = set()

    @property
    def num_open(self) -> int:
        """Ops that have not ended."""
        return len(self.ops) - len(self._done) - len(self._failed)

    @property
    def num_failed(self) -> int:
        """Ops that ended without a result."""
        return len(self._failed)

    def add(self, ops: Sequence[Op]) -> None:
        """Append ops."""
        self.ops.extend(ops)

    def take(self, event: Event) -> Event | None:
        """Note an event; returns what is new in it for the program's reader, if anything is."""
        if event.op in self._done or event.op in self._failed:
            return None
        match event:
            case OpDone():
                self._done[event.op] = event
            case OpFailed():
                self._failed.add(event.op)
            case OpScored():
                if event.op in self._scored:
                    return None
                self._scored.add(event.op)
            case OpDelta(op=op, text=text):
                skipped = min(self._skip.get(op, 0), len(text))
                if skipped:
                    self._skip[op] -= skipped
                    text = text[skipped:]
                self._num_streamed[op] = self._num_streamed.get(op, 0) + len(text)
                return OpDelta(op, text) if text else None
        return event

    def fail_open(self) -> list[Op]:
        """Everything open ends without a result; returns it."""
        open_ops = [op for op in self.ops if op.id not in self._done and op.id not in self._failed]
        self._failed.update(op.id for op in open_ops)
        return open_ops

    def decision_on(self, select: int) -> DecideOp | None:
        """The program's decision on a select, if it has made one."""
        return next((op for op in self.ops if isinstance(op, DecideOp) and op.select == select), None)

    def replay(self) -> list[Op]:
        """The ops that bring a new server to where the last one was.

        What was generated or chosen goes in as text that is never parsed. What failed is left out: so did everything after
        it on its branch. Decisions wait until the new server has scores again. Places in the program, from which seeds
        follow, stay the same.
        """
        self._skip = {op: num for op, num in self._num_streamed.items() if op not in self._done}
        return [again for op in self.ops if op.id not in self._failed and (again := self._again(op)) is not None]

    def _again(self, op: Op) -> Op | None:
        done = self._done.get(op.id)
        match op:
            case DecideOp():
                return None
            case GenOp() | SelectOp() if done is not None:
                return TextOp(op.id, op.branch, done.text, literal=True)
            case RefOp(target=target) if (of := self._done.get(target)) is not None:
                return TextOp(op.id, op.branch, op.text_of(of.text), literal=True)
            case _:
                return op
