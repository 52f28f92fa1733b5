"""Any number of rows, few at a time, each written to a file as it ends; memory does not grow with the rows."""

from __future__ import annotations

import contextvars
import heapq
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.lang.batch import STUCK_SECONDS
from sglang_lite.lang.event_loop import shared_loop
from sglang_lite.lang.futures import wait_interruptibly
from sglang_lite.lang.pool import Lane, shared_pool
from sglang_lite.lang.progress import ProgressBar
from sglang_lite.lang.results import BatchReport, ResultsFile
from sglang_lite.lang.runner import Call
from sglang_lite.lang.seeds import row_seed
from sglang_lite.lang.state import ProgramState


@dataclass(slots=True)
class Row:
    """A row on its way: its number among all rows, its key in the file, and its state once it has one."""

    number: int
    key: str
    call: Call
    state: ProgramState | None = None
    open_error: BaseException | None = None


class Window:
    """The rows under way; they end in any order."""

    def __init__(self, limit: int) -> None:
        self._lane = Lane(limit)
        self._changed = threading.Condition()
        self._open: dict[int, Row] = {}
        self._ended: deque[Row] = deque()
        self._num_begun = 0
        self._num_queued = 0
        self._is_cancelled = False

    def __len__(self) -> int:
        return len(self._open)

    def start(self, row: Row) -> None:
        """Queue a row."""
        with self._changed:
            self._open[row.number] = row
            self._num_queued += 1
        if row.call.is_async:
            shared_loop.start(lambda: self._run_async(row))
            return
        context = contextvars.copy_context()
        shared_pool.submit(self._lane, lambda: context.run(self._run, row))

    def _begin(self, row: Row) -> ProgramState | None:
        try:
            row.state = row.call.open(seed=row_seed(row.call.options.seed, row.number))
        except BaseException as error:  # noqa: BLE001 - no state to keep it on: the collector raises it
            row.open_error = error
        with self._changed:
            self._num_begun += 1
            is_cancelled = self._is_cancelled
        if row.state is None:
            self._end(row)
        elif is_cancelled:
            row.state.cancel()
        return row.state

    def _run(self, row: Row) -> None:
        if (state := self._begin(row)) is not None:
            row.call.run_body_quietly(state)
            state.branch.session.on_end(lambda: self._end(row))

    async def _run_async(self, row: Row) -> None:
        if (state := self._begin(row)) is not None:
            await row.call.run_body_async_quietly(state)
            state.branch.session.on_end(lambda: self._end(row))

    def _end(self, row: Row) -> None:
        if row.state is not None:
            row.call.settle(row.state)
        with self._changed:
            self._ended.append(row)
            self._changed.notify_all()

    def take(self) -> Row:
        """Wait for the next row that ends.

        Raises:
            BaseException: the backend could not even open the row's program.
        """
        with shared_pool.waiting(for_own_jobs=True):
            begun = -1
            while not self._wait():
                if self._num_begun == begun:
                    shared_pool.nudge()
                begun = self._num_begun
        with self._changed:
            row = self._ended.popleft()
            del self._open[row.number]
        if row.open_error is not None:
            raise row.open_error
        return row

    def _wait(self) -> bool:
        with self._changed:
            if self._num_begun < self._num_queued:  # rows wait for a thread, which bodies in tools may hold
                self._changed.wait_for(lambda: bool(self._ended), STUCK_SECONDS)
            else:
                wait_interruptibly(self._changed, lambda: bool(self._ended))
            return bool(self._ended)

    def cancel(self) -> None:
        """Stop what is under way and forget what has not begun."""
        shared_pool.drop(self._lane)
        with self._changed:
            self._is_cancelled = True
            states = [row.state for row in self._open.values() if row.state is not None]
        for state in states:
            state.cancel()


def run_to_file(
    rows: Iterator[Row],
    out: str | os.PathLike[str],
    resume: bool,
    limit: int,
    max_in_flight: int,
    ordered: bool,
    bar: ProgressBar | None,
) -> BatchReport:
    """Run the rows that the file `out` does not have yet, with at most `limit` threads.

    Raises:
        RequestError: `max_in_flight` is below 1, or the file cannot be used (see `ResultsFile`).
        Exception: as `write_rows`.
    """
    if max_in_flight < 1:
        raise RequestError(f"running a batch: got max_in_flight={max_in_flight!r}, expected at least 1")
    with ResultsFile(out, resume=resume) as file:
        return write_rows(rows, file, limit, max_in_flight, ordered, bar)


def write_rows(
    rows: Iterator[Row], file: ResultsFile, limit: int, max_in_flight: int, ordered: bool, bar: ProgressBar | None
) -> BatchReport:
    """Run the rows that the file does not have yet; at most `max_in_flight` are under way or wait to be written.

    Args:
        ordered: write them in the order of `rows`, else as they end.

    Raises:
        Exception: `rows` is wrong somewhere, or the backend cannot be used; what was done before is written.
    """
    report = BatchReport(file.path)
    window = Window(limit)
    waiting: list[tuple[int, Row]] = []
    order: deque[int] = deque()
    try:
        while True:
            while len(window) + len(waiting) < max_in_flight and (row := next(rows, None)) is not None:
                if row.key in file.done:
                    report.skipped += 1
                    continue
                order.append(row.number)
                window.start(row)
            if not len(window):
                break
            row = window.take()
            heapq.heappush(waiting, (row.number, row))
            while waiting and (not ordered or waiting[0][0] == order[0]):
                _write(heapq.heappop(waiting)[1], file, report)
                order.popleft()
            if bar is not None:
                bar.update(report.done + report.skipped)
    except KeyboardInterrupt:
        window.cancel()
        report.interrupted = True
    except BaseException:
        window.cancel()
        raise
    finally:
        if bar is not None:
            bar.close()
    return report


def _write(row: Row, file: ResultsFile, report: BatchReport) -> None:
    assert row.state is not None, f"row {row.number} ended without a state"
    error = row.state.error()
    report.done += 1
    report.failed += error is not None
    file.write(
        {
            "row": row.number,
            "key": row.key,
            "arguments": dict(row.call.kwargs),
            "variables": _variables(row.state),
            "ret_value": row.state.ret_value,
            "error": None if error is None else f"{type(error).__name__}: {error}",
        }
    )


def _variables(state: ProgramState) -> dict[str, Any]:
    """The named values that there are; those that failed are left out."""
    found: dict[str, Any] = {}
    for name, value in state.branch.variables.items():
        if all(future.done is not None for future in value.ops()):
            found[name] = value.get()
    return found
