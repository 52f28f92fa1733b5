"""Many rows of one function: bodies on as few threads as need one, results in order, errors with their row."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Sequence

from sglang_lite.errors import RequestError
from sglang_lite.lang.event_loop import shared_loop
from sglang_lite.lang.futures import wait_interruptibly
from sglang_lite.lang.pool import MAX_THREADS, Lane, shared_pool
from sglang_lite.lang.progress import ProgressBar
from sglang_lite.lang.runner import Call
from sglang_lite.lang.seeds import row_seed
from sglang_lite.lang.session import enclosing_session
from sglang_lite.lang.state import ProgramState

AHEAD = 200
"""How many rows a generator's consumer may be behind the rows that were started."""

STUCK_SECONDS = 0.01
"""Without a body ending or waiting for so long, bodies are taken to sit in tools, and one more thread is added."""


def thread_limit(num_threads: int | str) -> int:
    """How many bodies may be under way: `"auto"` or a number.

    Raises:
        RequestError: it is neither.
    """
    if num_threads == "auto":
        return MAX_THREADS
    if isinstance(num_threads, int) and num_threads >= 1:
        return num_threads
    raise RequestError(f"running a batch: got num_threads={num_threads!r}, expected 'auto' or a whole number >= 1")


class Batch:
    """The rows of one `run_batch`: started in order, ended in any, handed out in order."""

    def __init__(self, calls: Sequence[Call], limit: int) -> None:
        self._calls = calls
        outer = enclosing_session.get()
        seed = calls[0].options.seed if calls else None
        self._seed = outer.next_nested_seed() if seed is None and outer is not None else seed
        self._lane = Lane(limit)
        self._changed = threading.Condition()
        self._states: list[ProgramState | None] = [None] * len(calls)
        self._errors: dict[int, BaseException] = {}
        self._has_ended = [False] * len(calls)
        self._num_queued = 0
        self._num_begun = 0
        self._num_ended = 0
        self._is_cancelled = False

    def start(self, upto: int) -> None:
        """Queue the rows before number `upto` that are not queued yet."""
        for row in range(self._num_queued, min(upto, len(self._calls))):
            self._num_queued = row + 1
            if self._calls[row].is_async:
                shared_loop.start(lambda row=row: self._run_row_async(row))
                continue
            context = contextvars.copy_context()
            shared_pool.submit(self._lane, lambda row=row, context=context: context.run(self._run_row, row))

    def _run_row(self, row: int) -> None:
        state = self._open_row(row)
        if state is not None:
            self._calls[row].run_body_quietly(state)
            state.branch.session.on_end(lambda: self._end_row(row, state))

    async def _run_row_async(self, row: int) -> None:
        state = self._open_row(row)
        if state is not None:
            await self._calls[row].run_body_async_quietly(state)
            state.branch.session.on_end(lambda: self._end_row(row, state))

    def _open_row(self, row: int) -> ProgramState | None:
        call = self._calls[row]
        try:
            state = call.open(seed=row_seed(self._seed, row))
        except BaseException as error:  # noqa: BLE001 - no state to keep it on: the collector raises it
            with self._changed:
                self._errors[row] = error
                self._num_begun += 1
            self._end_row(row)
            return None
        with self._changed:
            self._states[row] = state
            self._num_begun += 1
            is_cancelled = self._is_cancelled
        if is_cancelled:
            state.cancel()
        return state

    def _end_row(self, row: int, state: ProgramState | None = None) -> None:
        if state is not None:
            self._calls[row].settle(state)
        with self._changed:
            self._has_ended[row] = True
            self._num_ended += 1
            self._changed.notify_all()

    def wait_for_row(self, row: int, bar: ProgressBar | None) -> ProgramState:
        """The state of a row once it has ended, with its error on it if there is one.

        Raises:
            BaseException: the backend could not even open the row's program.
        """
        with shared_pool.waiting(for_own_jobs=True):
            begun = -1
            while not self._wait(row):
                if bar is not None:
                    bar.update(self._num_ended)
                if self._num_begun == begun:
                    shared_pool.nudge()
                begun = self._num_begun
        if bar is not None:
            bar.update(self._num_ended)
        if row in self._errors:
            raise self._errors[row]
        state = self._states[row]
        assert state is not None, f"row {row} ended without a state"
        return state

    def _wait(self, row: int) -> bool:
        """Wait until the row has ended (True), or for a while as long as rows are queued that may need a thread."""
        with self._changed:
            if not self._has_ended[row]:
                seen = self._num_ended

                def has_news() -> bool:
                    return self._has_ended[row] or self._num_ended != seen

                if self._num_begun < self._num_queued:
                    self._changed.wait_for(has_news, STUCK_SECONDS)
                else:
                    wait_interruptibly(self._changed, has_news)
            return self._has_ended[row]

    def cancel(self) -> None:
        """Stop the rows under way and forget those that have not begun."""
        shared_pool.drop(self._lane)
        with self._changed:
            self._is_cancelled = True
            states = [state for state in self._states if state is not None]
        for state in states:
            state.cancel()


def run_batch(calls: Sequence[Call], limit: int, progress_bar: bool) -> list[ProgramState]:
    """Run all calls; the states in order, each with its own error, if any. Ctrl-C cancels all rows and is raised."""
    return list(iterate_batch(calls, limit, progress_bar, ahead=len(calls)))


def iterate_batch(
    calls: Sequence[Call], limit: int, progress_bar: bool = False, ahead: int = AHEAD
) -> Iterator[ProgramState]:
    """The states in order, each once it has ended; at most `ahead` rows are begun before they are asked for.

    Leaving the iteration early cancels what is under way.
    """
    batch = Batch(calls, limit)
    bar = ProgressBar(len(calls)) if progress_bar else None
    try:
        for row in range(len(calls)):
            batch.start(row + ahead)
            yield batch.wait_for_row(row, bar)
    except BaseException:
        batch.cancel()
        raise
    finally:
        if bar is not None:
            bar.close()
