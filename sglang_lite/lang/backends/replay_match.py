"""Which op of a record an op of a program is: found by its place, compared field by field; it reports nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sglang_lite.records.record import OpRecord, RunRecord
from sglang_lite.request_tree import (
    AnswerOp,
    DecideOp,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    RefOp,
    RewindOp,
    SamplingParams,
    SelectOp,
)


class Differs(Exception):  # noqa: N818 - no error of its own: whoever asked makes one of it
    """An op is not what the record has in its place; says both."""


class RecordedOps:
    """The ops of a record, and which ops of a program they have been so far."""

    def __init__(self, record: RunRecord) -> None:
        self.program = record.program
        self._records = {one.op.id: one for one in record.ops}
        self._by_branch: dict[int, list[OpRecord]] = {}
        self._answers: dict[int, list[OpRecord]] = {}
        """Answers by the op that they answer."""
        for one in record.ops:
            group = self._answers if isinstance(one.op, AnswerOp) else self._by_branch
            group.setdefault(_answered(one.op) if isinstance(one.op, AnswerOp) else one.op.branch, []).append(one)
        self._branches: dict[int, int] = {0: 0}
        """The record's branch for each of the program's."""
        self._places: dict[int, int] = {}
        """How many ops of each branch of the record were met."""
        self._to_record: dict[int, int] = {}
        self._to_program: dict[int, int] = {}
        self._num_asked: dict[int, int] = {}
        self._num_answered: dict[int, int] = {}

    def num_matching(self, ops: Sequence[Op]) -> int:
        """How many of `ops`, from the first on, the record has too; to be asked of a new object."""
        for number, op in enumerate(ops):
            try:
                self.meet(op)
            except Differs:
                return number
        return len(ops)

    def meet(self, op: Op) -> None:
        """The program has sent `op`.

        Raises:
            Differs: the record has none or another one there.
        """
        found = self._find(op)
        if found is None:
            raise Differs(f"op {op.id}, {_in_words(op)}, is not in the record, which ends there")
        self._compare(op, found.op)
        self._to_record[op.id], self._to_program[found.op.id] = found.op.id, op.id
        if isinstance(op, ForkOp) and isinstance(found.op, ForkOp):
            self._branches.update(zip(op.children, found.op.children, strict=True))

    def _find(self, op: Op) -> OpRecord | None:
        if isinstance(op, AnswerOp):
            target = self._to_record.get(_answered(op))
            if target is None:
                return None
            number = self._num_answered[target] = self._num_answered.get(target, 0) + 1
            answers = self._answers.get(target, [])
            return answers[number - 1] if number <= len(answers) else None
        branch = self._branches.get(op.branch)
        if branch is None:
            return None
        number = self._places[branch] = self._places.get(branch, 0) + 1
        ops = self._by_branch.get(branch, [])
        return ops[number - 1] if number <= len(ops) else None

    def _compare(self, op: Op, recorded: Op) -> None:
        if type(op) is not type(recorded):
            raise Differs(f"op {op.id} is {_in_words(op)}, the record has {_in_words(recorded)} there")
        same = self._as_recorded(op, recorded)
        for name, value, expected in _differences(same, recorded):
            raise Differs(
                f"op {op.id}, {_in_words(op)}: {name} is {_shown(value)}, the record has {_shown(expected)} there"
            )

    def _as_recorded(self, op: Op, recorded: Op) -> Op:
        """The op with the record's ids; how it is streamed does not matter."""
        changes: dict[str, Any] = {"id": recorded.id, "branch": recorded.branch}
        match op:
            case GenOp() if isinstance(recorded, GenOp):
                changes["stream"] = recorded.stream
            case RefOp(target=target):
                changes["target"] = self._to_record.get(target, -1)
            case RewindOp(mark=mark):
                changes["mark"] = self._to_record.get(mark, -1)
            case DecideOp(select=target):
                changes["select"] = self._to_record.get(target, -1)
            case ForkOp(children=children) if isinstance(recorded, ForkOp) and len(children) == len(recorded.children):
                changes["children"] = recorded.children
            case JoinOp(children=children):
                changes["children"] = tuple(self._branches.get(child, -1) for child in children)
            case _ if isinstance(op, AnswerOp):
                changes["gen"] = self._to_record.get(_answered(op), -1)
            case _:
                pass
        return replace(op, **changes)

    def number_of(self, recorded: int) -> int | None:
        """The program's id of an op of the record; None: it was not sent yet."""
        return self._to_program.get(recorded)

    def branch_of(self, recorded: int) -> int:
        """The record's branch of an op of the record."""
        return self._records[recorded].op.branch

    def has_end(self, number: int) -> bool:
        """The record knows how this op of the program ended."""
        return self._records[self._to_record[number]].result is not None

    def asked(self, recorded: int) -> None:
        """The program was asked something about an op of the record."""
        self._num_asked[recorded] = self._num_asked.get(recorded, 0) + 1

    def waits_for_answer(self, recorded: int) -> bool:
        """The program owes an answer about it."""
        return self._num_asked.get(recorded, 0) > self._num_answered.get(recorded, 0)

    def unsent(self) -> list[str]:
        """The ops that the program has not sent, in words."""
        return [
            f"{self.program}: op {number}, {_in_words(one.op)}"
            for number, one in self._records.items()
            if number not in self._to_program
        ]


def _answered(op: AnswerOp) -> int:
    return op.select if isinstance(op, DecideOp) else op.gen


def _differences(op: Any, recorded: Any) -> list[tuple[str, Any, Any]]:
    """Fields that differ, of sampling parameters each for itself."""
    found: list[tuple[str, Any, Any]] = []
    for one in fields(op):
        value, expected = getattr(op, one.name), getattr(recorded, one.name)
        if value == expected:
            continue
        if isinstance(value, SamplingParams) and isinstance(expected, SamplingParams):
            found += _differences(value, expected)
        else:
            found.append((one.name, value, expected))
    return found


def _in_words(op: Op) -> str:
    kind = type(op).__name__.removesuffix("Op").lower()
    name = f" {op.name!r}" if isinstance(op, GenOp | SelectOp) and op.name is not None else ""
    return f"a {kind}{name} on branch {op.branch}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
