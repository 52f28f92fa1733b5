"""Results of ops: filled by a program's events, waited for by its readers; they know no backend and no language."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sglang_lite.lang.pool import shared_pool
from sglang_lite.lang.typed.attempts import Attempts
from sglang_lite.request_tree import GenOp, Op, OpDone

_SIGNAL_SECONDS = 0.5


def _wait_for_lock(woken: threading.Lock) -> None:
    """Wait until a lock is released elsewhere; Ctrl-C ends the wait on the main thread, see `wait_interruptibly`."""
    on_main = threading.current_thread() is threading.main_thread()
    while not woken.acquire(timeout=_SIGNAL_SECONDS if on_main else -1):
        continue


def wait_interruptibly(changed: threading.Condition, is_true: Callable[[], bool]) -> None:
    """Wait on a held condition until `is_true()`; Ctrl-C ends the wait on the main thread, which alone gets it.

    A signal that comes just before the thread sleeps does not wake it: hence the main thread looks up now and then.
    """
    on_main = threading.current_thread() is threading.main_thread()
    while not changed.wait_for(is_true, _SIGNAL_SECONDS if on_main else None):
        continue


class Signal:
    """Says that something of a program changed. One lock guards everything that can be waited for.

    `before_wait` is called before a wait (to send what is not sent yet), `on_interrupt` when Ctrl-C ends one.
    `check_blocking` raises where the thread must not be blocked.
    """

    def __init__(
        self,
        before_wait: Callable[[], None],
        on_interrupt: Callable[[], None],
        check_blocking: Callable[[], None] | None = None,
    ) -> None:
        self.changed = threading.RLock()
        self._before_wait = before_wait
        self._on_interrupt = on_interrupt
        self._check_blocking = check_blocking
        self.listeners: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Tell everybody who waits; the caller holds `changed`. Listeners must be quick and not raise."""
        for listener in self.listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at each change, under the lock; the returned function ends that."""
        with self.changed:
            self.listeners.append(listener)

        def stop() -> None:
            with self.changed:
                self.listeners.remove(listener)

        return stop

    def wait_for(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is asked under the lock. Ctrl-C ends the wait and cancels the program.

        The thread is woken once it is true (or raises, as this does then), and not by what else changes.
        """
        with self.changed:
            if is_true():
                return
        if self._check_blocking is not None:
            self._check_blocking()
        woken = threading.Lock()
        woken.acquire()
        was_woken = False
        failure: Exception | None = None

        def wake() -> None:
            nonlocal was_woken, failure
            if was_woken:
                return
            try:
                was_woken = is_true()
            except Exception as error:  # noqa: BLE001 - whoever waits asked, and gets it, not the thread that notifies
                was_woken, failure = True, error
            if was_woken:
                woken.release()

        stop = self.listen(wake)
        try:
            self._before_wait()
            with self.changed:
                wake()
            with shared_pool.waiting():
                _wait_for_lock(woken)
            if failure is not None:
                raise failure
        except KeyboardInterrupt:
            self._on_interrupt()
            raise
        finally:
            stop()

    async def wait_for_async(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is asked under the lock, without blocking the event loop."""
        with self.changed:
            if is_true():
                return
        self._before_wait()
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        was_woken = False

        def end_wait() -> None:
            if not came.done():
                came.set_result(None)

        def wake() -> None:
            nonlocal was_woken
            if not was_woken and is_true() and not loop.is_closed():
                was_woken = True
                loop.call_soon_threadsafe(end_wait)

        stop = self.listen(wake)
        try:
            with self.changed:
                wake()
            await came
        finally:
            stop()


class OpFuture:
    """What became of one op. `pieces` are its streamed texts so far; exactly one of `done`, `error` is set in the end.

    `attempts`: judges the results of a gen that gives a value. `was_awaited`: an `async def` body has awaited the end. `decision_meta`: what a program's own choice method reported, added to the `meta` of `done`.
    """

    __slots__ = (
        "_signal",
        "attempts",
        "decision_meta",
        "done",
        "ended_s",
        "error",
        "op",
        "pieces",
        "sent_s",
        "was_awaited",
    )

    def __init__(self, op: Op, signal: Signal) -> None:
        self.op = op
        self.pieces: list[str] = []
        self.done: OpDone | None = None
        self.error: Exception | None = None
        self.decision_meta: dict[str, Any] = {}
        self.was_awaited = False
        self.attempts: Attempts | None = None
        self.sent_s = time.perf_counter()
        self.ended_s: float | None = None
        self._signal = signal

    def finish(self, done: OpDone) -> None:
        """The op is done; the caller holds the signal's lock."""
        self.ended_s = time.perf_counter()
        self.done = replace(done, meta=done.meta | self.decision_meta) if self.decision_meta else done

    @property
    def needs_judging(self) -> bool:
        """True for a gen whose `OpDone` is a result that nobody has looked at."""
        return self.attempts is not None and isinstance(self.op, GenOp) and not self.op.hold

    @property
    def metas(self) -> list[Mapping[str, Any]]:
        """What the backend reported about each result until now: several where a gen was tried again."""
        if self.attempts is not None:
            return list(self.attempts.metas)
        return [] if self.done is None else [self.done.meta]

    @property
    def has_ended(self) -> bool:
        """True once the op is done or has failed."""
        return self.done is not None or self.error is not None

    @property
    def text_so_far(self) -> str:
        """What the op has added to its branch's text until now."""
        return self.done.text if self.done is not None else "".join(self.pieces)

    def wait(self) -> None:
        """Wait for the end of the op, however it ends."""
        if not self.has_ended:
            self._signal.wait_for(lambda: self.has_ended)

    def result(self) -> OpDone:
        """Wait for the result.

        Raises:
            Exception: the op's error.
        """
        self.wait()
        if self.error is not None:
            raise self.error
        assert self.done is not None, f"op {self.op.id} ended without a result and without an error"
        return self.done
