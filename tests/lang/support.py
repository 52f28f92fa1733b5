"""A backend whose events the test delivers by hand, and small helpers to wait without sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from sglang_lite.errors import CancelledError
from sglang_lite.request_tree import EventSink, GenOp, Op, OpDelta, OpDone, OpFailed, OpScored, SelectOp

TIMEOUT = 60.0
"""Seconds after which a wait in a test has failed."""


class HandProgram:
    """A program that does nothing by itself: the test reads `ops` and calls `done`, `fail`, `delta`."""

    def __init__(self, sink: EventSink, seed: int | None) -> None:
        self.sink = sink
        self.seed = seed
        self.ops: list[Op] = []
        self.batches: list[list[Op]] = []
        self.ended: set[int] = set()
        self.cancels: list[Sequence[int] | None] = []
        self.num_closes = 0
        self.changed = threading.Condition()

    def append(self, ops: Sequence[Op]) -> None:
        with self.changed:
            assert not self.num_closes, "append after close"
            self.ops.extend(ops)
            self.batches.append(list(ops))
            self.changed.notify_all()

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        with self.changed:
            self.cancels.append(branches)
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.num_closes += 1
            self.changed.notify_all()

    def wait(self, is_true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_true, TIMEOUT), f"waited too long; ops are {self.ops}"

    def gens(self) -> list[GenOp | SelectOp]:
        return [op for op in self.ops if isinstance(op, GenOp | SelectOp)]

    def wait_gen(self, index: int = 0) -> GenOp | SelectOp:
        self.wait(lambda: len(self.gens()) > index)
        return self.gens()[index]

    def delta(self, op: Op, text: str) -> None:
        self.sink(OpDelta(op.id, text))

    def done(self, op: Op, text: str = "", value: Any = None, **meta: Any) -> None:
        self.ended.add(op.id)
        is_value = isinstance(op, GenOp | SelectOp)
        self.sink(OpDone(op.id, text, (text if value is None else value) if is_value else None, meta=meta))

    def done_others(self) -> None:
        """End every op that is no gen or select."""
        for op in list(self.ops):
            if op.id not in self.ended and not isinstance(op, GenOp | SelectOp):
                self.done(op, getattr(op, "text", ""))

    def fail(self, op: Op, error: Exception) -> None:
        self.ended.add(op.id)
        self.sink(OpFailed(op.id, error))

    def scored(self, op: Op, meta: dict[str, Any]) -> None:
        self.sink(OpScored(op.id, meta))

    def fail_rest(self, error: Exception | None = None) -> None:
        for op in list(self.ops):
            if op.id not in self.ended:
                self.fail(op, error or CancelledError("cancelled"))


class HandBackend:
    """Opens `HandProgram`s."""

    def __init__(self) -> None:
        self.programs: list[HandProgram] = []
        self.opened = threading.Condition()

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> HandProgram:
        with self.opened:
            program = HandProgram(sink, seed)
            self.programs.append(program)
            self.opened.notify_all()
            return program

    def wait_program(self, index: int = 0) -> HandProgram:
        with self.opened:
            assert self.opened.wait_for(lambda: len(self.programs) > index, TIMEOUT), "no program was opened"
            return self.programs[index]

    def flush_cache(self) -> bool:
        return True

    def get_server_info(self) -> dict[str, Any]:
        return {"programs": len(self.programs)}

    def shutdown(self) -> None:
        return None


class Background:
    """Runs a function on a thread and hands out its result, or raises its error, within `TIMEOUT`."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to the test by `result`
            self._error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the function hangs"
        if self._error is not None:
            raise self._error
        return self._result
