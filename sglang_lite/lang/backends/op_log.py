"""A program's op log: what was asked and what came of it, and from it the ops that make a new server go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import (
    AcceptOp,
    AnswerOp,
    ArgOp,
    DecideOp,
    Event,
    GenOp,
    JoinOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    RefOp,
    RefuseOp,
    RetryOp,
    SelectOp,
    TextOp,
)


class OpLog:
    """Ops in order of appending and their ends. Not locked: its owner does that."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._by_id: dict[int, Op] = {}
        self._done: dict[int, OpDone] = {}
        self._failed: dict[int, Exception] = {}
        self._num_streamed: dict[int, int] = {}
        """Characters of each op's text that were handed on in pieces."""
        self._skip: dict[int, int] = {}
        """Characters of each op's pieces that a new server sends again."""
        self._scored: set[int] = set()
        self._held: dict[int, list[OpHeld]] = {}
        """Attempts of each held gen that the program was asked about ..."""
        self._num_held: dict[int, int] = {}
        """... and how many of them the present server has told of."""
        self._accepted: dict[int, OpDone] = {}
        """Ends of gens whose accepted attempt went to the present server as text."""

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
        self._by_id.update((op.id, op) for op in ops)

    def take(self, event: Event) -> list[Event]:
        """Note an event; returns what is new in it for the program's reader.

        Raises:
            ExecutionError: a new server gave another text for an attempt that the program is being asked about.
        """
        if event.op in self._done or event.op in self._failed:
            return []
        match event:
            case OpDone():
                return self._end(event)
            case OpFailed():
                event = self._with_first_cause(event)
                self._failed[event.op] = event.error
            case OpScored():
                if event.op in self._scored:
                    return []
                self._scored.add(event.op)
            case OpHeld():
                return [event] if self._is_new_attempt(event) else []
            case OpDelta(op=op, text=text):
                skipped = min(self._skip.get(op, 0), len(text))
                if skipped:
                    self._skip[op] -= skipped
                    text = text[skipped:]
                self._num_streamed[op] = self._num_streamed.get(op, 0) + len(text)
                return [OpDelta(op, text)] if text else []
        return [event]

    def _end(self, event: OpDone) -> list[Event]:
        if (accepted := self._accepted.get(event.op)) is None:
            self._done[event.op] = event
            return [event]
        answers = [OpDone(op.id) for op in self._answers_to(event.op) if op.id not in self._done]
        self._done.update((done.op, done) for done in (*answers, accepted))
        return [*answers, accepted]

    def _with_first_cause(self, event: OpFailed) -> OpFailed:
        """A join fails with what its child failed with, also where the child was only told to fail again."""
        op = self._by_id.get(event.op)
        if isinstance(op, JoinOp) and op.mode == "concat":
            failed = {other.branch: self._failed[other.id] for other in reversed(self.ops) if other.id in self._failed}
            return next((OpFailed(op.id, failed[child]) for child in op.children if child in failed), event)
        return event

    def _is_new_attempt(self, event: OpHeld) -> bool:
        told = self._held.setdefault(event.op, [])
        number = self._num_held.get(event.op, 0)
        self._num_held[event.op] = number + 1
        if number == len(told):
            told.append(event)
            return True
        if number == len(self._answers_to(event.op)) and told[number].text != event.text:
            raise ExecutionError(
                f"going on with a program on another server: attempt {number + 1} of gen {event.op} has another text than "
                "the one that is being checked; run the program again"
            )
        return False

    def _answers_to(self, op: int) -> list[AnswerOp]:
        return [
            other
            for other in self.ops
            if isinstance(other, AnswerOp) and (other.select if isinstance(other, DecideOp) else other.gen) == op
        ]

    def fail_open(self) -> list[Op]:
        """Everything open ends without a result; returns it."""
        open_ops = [op for op in self.ops if op.id not in self._done and op.id not in self._failed]
        self._failed.update((op.id, ExecutionError("given up")) for op in open_ops)
        return open_ops

    def answer_to(self, event: Event) -> AnswerOp | None:
        """The program's answer to a question that a new server asks again, if it has given one."""
        if not isinstance(event, OpScored | OpHeld):
            return None
        number = self._num_held.get(event.op, 1) - 1 if isinstance(event, OpHeld) else 0
        answers = self._answers_to(event.op)
        return answers[number] if number < len(answers) else None

    def replay(self) -> list[Op]:
        """The ops that bring a new server to where the last one was.

        What was generated, chosen or accepted goes in as text that is never parsed, with its tokens, and a race that was decided is no
        race. What failed is left out: so did everything after it on its branch; only a child that an open join waits
        for is made to fail again. Answers wait until the new server has asked again. Places in the program, from which
        seeds follow, stay the same.
        """
        self._skip = {op: num for op, num in self._num_streamed.items() if op not in self._done}
        self._num_held = {}
        self._accepted = {}
        waited_for = {
            child
            for op in self.ops
            if isinstance(op, JoinOp) and op.id not in self._done and op.id not in self._failed
            for child in op.children
        }
        replayed: list[Op] = []
        for op in self.ops:
            if op.id not in self._failed:
                again = self._again(op)
                replayed.extend([again] if again is not None else [])
            elif op.branch in waited_for:
                waited_for.discard(op.branch)
                replayed.append(ArgOp(op.id, op.branch, "of a branch that has failed"))
        return replayed

    def _again(self, op: Op) -> Op | None:
        done = self._done.get(op.id)
        match op:
            case DecideOp() | AcceptOp() | RetryOp() | RefuseOp():
                return None
            case GenOp() | SelectOp() if done is not None:
                return _given(op, done)
            case GenOp(hold=True) if (accepted := self._accepted_end(op)) is not None:
                self._accepted[op.id] = accepted
                return _given(op, accepted)
            case RefOp(target=target) if (of := self._done.get(target)) is not None:
                return TextOp(
                    op.id, op.branch, op.text_of(of.value if isinstance(of.value, str) else of.text), literal=True
                )
            case JoinOp() if done is not None:
                return replace(op, first=None, vote=None)
            case _:
                return op

    def _accepted_end(self, gen: GenOp) -> OpDone | None:
        """How `gen` ends, where the program has accepted an attempt and the server has not said so yet."""
        answers, told = self._answers_to(gen.id), self._held.get(gen.id, [])
        if not answers or not isinstance(answers[-1], AcceptOp):
            return None
        assert len(told) == len(answers), f"gen {gen.id}: {len(answers)} answers to {len(told)} attempts"
        added = [
            (held.text if answer.keep else "") + answer.text
            for held, answer in zip(told, answers, strict=True)
            if isinstance(answer, RetryOp)
        ]
        last = told[-1]
        text, meta = "".join((*added, last.text)), last.meta | {"attempts": len(told)}
        return OpDone(gen.id, text, last.text, last.ids, last.kinds, meta)


def _given(op: GenOp | SelectOp, done: OpDone) -> TextOp:
    """What `op` gave, as text with its tokens; those of a text with retries in it are not all known."""
    value = done.value[0] if isinstance(done.value, list) else done.value
    ids = done.ids if done.text == value else ()
    return TextOp(op.id, op.branch, done.text, literal=True, ids=ids, is_models=bool(ids) and isinstance(op, GenOp))
