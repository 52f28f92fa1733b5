"""Keeps what a running program's backend reports, in order and with times, and makes a record of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sglang_lite.records.record import OpRecord, Question, RunRecord
from sglang_lite.request_tree import Event, Op, OpDelta, OpDone, OpFailed


class RunRecorder:
    """Of one run. Its writers hold the lock of that run; `record` needs none, for it reads copies.

    Args:
        program: the name of its function.
        backend: what kind of backend runs it.
        model: gives the name of its model, or None; asked when a record is made.
        seed: what its ops derive their seeds from, if that is known.
    """

    def __init__(self, program: str, backend: str, model: Callable[[], str | None], seed: int | None) -> None:
        self._program = program
        self._backend = backend
        self._model = model
        self._seed = seed
        self.started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.nested: list[RunRecorder] = []
        self._began_s = time.perf_counter()
        self._sent: dict[int, tuple[Op, float]] = {}
        self._events: list[tuple[float, Event]] = []
        self._error: Exception | None = None
        self._open: set[int] = set()

    def _now(self) -> float:
        return time.perf_counter() - self._began_s

    def sent(self, op: Op) -> None:
        """The program appended an op."""
        self._sent[op.id] = (op, self._now())
        self._open.add(op.id)

    def take(self, event: Event) -> None:
        """The backend reported something; streamed pieces are left out, their text comes again with the end."""
        if not isinstance(event, OpDelta):
            self._events.append((self._now(), event))
            if isinstance(event, OpDone | OpFailed):
                self._open.discard(event.op)

    def failed(self, op: Op, error: Exception) -> None:
        """An op failed, on the backend or here: by a cancel, or because its branch had failed."""
        self.note_error(error)
        self.take(OpFailed(op.id, error))

    def note_error(self, error: Exception) -> None:
        """The first error of all that are noted is the run's."""
        self._error = self._error or error

    def record(self) -> RunRecord:
        """What is known now."""
        results: dict[int, tuple[int, float, OpDone | OpFailed]] = {}
        questions: dict[int, list[Question]] = {}
        for order, (at_s, event) in enumerate(list(self._events)):
            if isinstance(event, OpDone | OpFailed):
                results[event.op] = (order, at_s, event)
            elif not isinstance(event, OpDelta):
                questions.setdefault(event.op, []).append(Question(order, at_s, event))
        return RunRecord(
            program=self._program,
            backend=self._backend,
            model=self._model(),
            seed=self._seed,
            started_at=self.started_at,
            seconds=self._now() if self._open or not self._events else self._events[-1][0],
            error=self._error,
            ops=tuple(
                _op_record(op, at_s, results.get(op.id), questions.get(op.id, ()))
                for op, at_s in list(self._sent.values())
            ),
            nested=tuple(inner.record() for inner in list(self.nested)),
        )


def _op_record(
    op: Op, sent_s: float, end: tuple[int, float, OpDone | OpFailed] | None, questions: Sequence[Question]
) -> OpRecord:
    if end is None:
        return OpRecord(op, sent_s, questions=tuple(questions))
    order, ended_s, result = end
    return OpRecord(op, sent_s, result, order, ended_s, tuple(questions))
