"""A recorded run in place of a model: the same values in the same order, and an error where the program is another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, RequestError
from sglang_lite.lang.backends.replay_match import Differs, RecordedOps
from sglang_lite.lang.backends.script import words
from sglang_lite.lang.deadlines import shared_clock
from sglang_lite.lang.pool import Lane, shared_pool
from sglang_lite.records.record import RunRecord
from sglang_lite.request_tree import Event, EventSink, ForkOp, GenOp, Op, OpDelta, OpDone, OpFailed, OpHeld, OpScored

ORDER_PATIENCE_S = 0.2
"""How long an event waits for those before it whose ops the program has not sent; then it goes ahead of them."""


class ReplayError(ExecutionError):
    """The program is not the recorded one, or does something else this time."""


class ReplayBackend:
    """Answers programs from records.

    Each program takes the first record, of those not taken yet, that begins with its ops; when all are taken, they are
    used again. Ops are told apart by their place (fork child of fork child, number on the branch), not by their ids. An
    op that is not what the record has in its place fails, and with it everything that is open: the message names it.

    Args:
        records: each with the runs inside it.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self.records = [inner for record in records for inner in record.with_nested()]
        if not self.records:
            raise RequestError("replaying: no records, expected at least one")
        self._lock = threading.Lock()
        self._lane = Lane(1)
        self._free = list(self.records)
        self._programs: list[_ReplayProgram] = []
        self._is_stopped = False

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> _ReplayProgram:
        """Start a program; `seed` has no effect.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        with self._lock:
            if self._is_stopped:
                raise EngineStoppedError("replaying a record: the backend was shut down; make a new one")
            program = _ReplayProgram(self, self._lane, sink)
            self._programs.append(program)
        return program

    def take_record(self, ops: Sequence[Op]) -> RunRecord:
        """The record for a program that begins with `ops`: where none fits, the one that fits longest."""
        with self._lock:
            if not self._free:
                self._free = list(self.records)
            best = max(self._free, key=lambda record: RecordedOps(record).num_matching(ops))  # the first of equals
            self._free = [record for record in self._free if record is not best]
            return best

    def left_over(self) -> list[str]:
        """Recorded ops that programs without anything open have not sent, in words; empty: all of it was replayed."""
        with self._lock:
            programs = list(self._programs)
        return [text for program in programs for text in program.left_over()]

    def flush_cache(self) -> bool:
        """False: there are no prefixes to forget."""
        return False

    def get_server_info(self) -> dict[str, Any]:
        """The kind of backend and what it replays."""
        return {"backend": "replay", "programs": [record.program for record in self.records]}

    def shutdown(self) -> None:
        """End the backend; open ops fail with `EngineStoppedError`. Idempotent."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            programs = list(self._programs)
        for program in programs:
            program.stop(EngineStoppedError("replaying a record: the backend was shut down"))


class _ReplayProgram:
    """One program; everything but the entry points runs as jobs, one at a time."""

    def __init__(self, backend: ReplayBackend, lane: Lane, sink: EventSink) -> None:
        self._backend = backend
        self._lane = lane
        self._sink = sink
        self._recorded: RecordedOps | None = None
        self._pending: list[Event] = []
        """Events of the record that were not reported yet, in order."""
        self._open: dict[int, Op] = {}
        """Ops of the program, by its own ids."""
        self._parents: dict[int, int] = {}
        self._cancelled: set[int] = set()
        self._failure: Exception | None = None
        self._is_closed = False

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; see `Program.append`."""
        given = tuple(ops)
        self._do(lambda: self._take(given))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Fail what is open; see `Program.cancel`."""
        named = None if branches is None else set(branches)
        self._do(lambda: self._cancel(named))

    def close(self) -> None:
        """See `Program.close`."""
        self._do(self._close)

    def stop(self, error: Exception) -> None:
        """Fail what is open and what comes."""
        self._do(lambda: self._fail_all(error))

    def left_over(self) -> list[str]:
        """See `ReplayBackend.left_over`."""
        return self._recorded.unsent() if self._recorded is not None and not self._open else []

    def _do(self, job: Callable[[], None]) -> None:
        shared_pool.submit(self._lane, job)

    def _take(self, ops: Sequence[Op]) -> None:
        if self._recorded is None:
            record = self._backend.take_record(ops)
            self._recorded = RecordedOps(record)
            self._pending = record.events()
        for op in ops:
            self._open[op.id] = op
            if isinstance(op, ForkOp):
                self._parents.update(dict.fromkeys(op.children, op.branch))
            self._meet(op)
        self._advance()

    def _meet(self, op: Op) -> None:
        """Find the op in the record."""
        assert self._recorded is not None, f"op {op.id} comes before a record was taken"
        if self._failure is None:
            try:
                self._recorded.meet(op)
            except Differs as difference:
                self._fail_all(ReplayError(f"replaying {self._recorded.program}: {difference}"))
                return
        if self._failure is not None:
            self._end(op.id, self._failure)
        elif self._is_cancelled(op.branch):
            self._end(op.id, CancelledError("replaying a record: cancelled"))
        elif not self._recorded.has_end(op.id):
            self._end(
                op.id, ReplayError(f"replaying {self._recorded.program}: the record was made before op {op.id} ended")
            )

    def _is_cancelled(self, branch: int) -> bool:
        while branch not in self._cancelled:
            if branch not in self._parents:
                return False
            branch = self._parents[branch]
        return True

    def _cancel(self, named: set[int] | None) -> None:
        if named is None:
            self._fail_all(CancelledError("replaying a record: cancelled"))
            return
        self._cancelled |= named
        for op in list(self._open.values()):
            if self._is_cancelled(op.branch):
                self._end(op.id, CancelledError("replaying a record: cancelled"))
        self._advance()

    def _close(self) -> None:
        self._is_closed = True
        self._advance()

    def _fail_all(self, error: Exception) -> None:
        self._failure = self._failure or error
        for number in list(self._open):
            self._end(number, self._failure)

    def _end(self, number: int, error: Exception) -> None:
        if self._open.pop(number, None) is not None:
            self._sink(OpFailed(number, error))

    def _advance(self) -> None:
        """Report what is next in the record as long as its ops are there; without more to come, whatever can be."""
        while self._report_next(in_order=not self._is_closed):
            continue
        if self._open and self._pending and not self._is_closed and self._failure is None:
            waiting = len(self._pending)
            shared_clock.set(ORDER_PATIENCE_S, lambda: self._do(lambda: self._go_ahead(waiting)))

    def _go_ahead(self, waiting: int) -> None:
        """The program may be waiting for an event that stands behind one of an op that it has not sent."""
        if len(self._pending) == waiting and self._failure is None and self._report_next(in_order=False):
            self._advance()

    def _report_next(self, *, in_order: bool) -> bool:
        """Report the first event that can be; `in_order`: only if it is the first of all."""
        recorded, blocked = self._recorded, set[int]()
        if recorded is None:
            return False
        for index, event in enumerate(self._pending):
            number = recorded.number_of(event.op)
            if number is not None and number not in self._open:  # it was cancelled, or has failed
                del self._pending[index]
                return True
            branch = recorded.branch_of(event.op)
            if number is not None and branch not in blocked and not recorded.waits_for_answer(event.op):
                del self._pending[index]
                self._report(number, event)
                return True
            if in_order:
                return False
            blocked.add(branch)
        return False

    def _report(self, number: int, event: Event) -> None:
        assert self._recorded is not None, f"op {number} is reported before a record was taken"
        op = self._open[number]
        if isinstance(event, OpScored | OpHeld):
            self._recorded.asked(event.op)
        else:
            del self._open[number]
        if isinstance(event, OpDone) and isinstance(op, GenOp) and op.stream:
            for piece in words(event.text):
                self._sink(OpDelta(number, piece))
        self._sink(replace(event, op=number))


def replay_of(*records: str | Path | RunRecord) -> ReplayBackend:
    """A backend for records and files of records.

    Raises:
        RequestError: a file cannot be read or holds no record.
    """
    return ReplayBackend([one if isinstance(one, RunRecord) else RunRecord.load(one) for one in records])
