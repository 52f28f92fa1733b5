"""One program on a server: its op log is the truth, what the server has is a cache of it; it knows the routes of programs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, SglangLiteError
from sglang_lite.lang.backends.http_client import (
    HEADERS_ID,
    HttpClient,
    HttpEvents,
    RefusedError,
    UnreachableError,
    shared_loop,
)
from sglang_lite.lang.backends.op_log import OpLog
from sglang_lite.lang.backends.retries import Patience, Retries
from sglang_lite.lang.backends.server_answers import error_of
from sglang_lite.op_json import VERSION, event_from_json, op_to_json
from sglang_lite.request_tree import EventSink, Op, OpFailed

_GATHER_S = 0.002
"""How long the first ops of a program wait for its close."""

_NUM_OTHERS = 12
"""Servers that may stand behind one address: so often a request is sent to a program that the one that got it has not."""

SILENCE_S = 60.0
"""A stream without any line for so long is taken for broken; servers write a comment after 10 s of silence."""


class LostError(UnreachableError):
    """The server's engine is gone, and all that it had."""


class RemoteProgram:
    """A running program (see `request_tree.Program`).

    A server that does not know the program any more gets a new one: what is done already goes in as text with its tokens,
    so values stay as they are, and at most the op that ran on each branch is done again, with the same seed.
    """

    def __init__(
        self, http: HttpClient, sink: EventSink, seed: int, patience: Patience, log: OpLog | None = None
    ) -> None:
        """`log`: of a program that has begun elsewhere and goes on here; no further ops come."""
        self.seed = seed
        """From which every op without its own seed derives one."""
        self._http = http
        self._sink = sink
        self._lock = threading.Lock()
        self._log = log or OpLog()
        self._retries = Retries(patience)
        self._link = _Link(http, seed, self._log, self._lock, self._retries.opened)
        self._stopped = asyncio.Event()
        self._is_dead = False
        self._is_running = False

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; never waits."""
        with self._lock:
            is_dead = self._is_dead
            if not is_dead:
                self._log.add(ops)
                self._link.outbox.extend(ops)
        if is_dead:
            for op in ops:
                self._sink(OpFailed(op.id, CancelledError("the program has ended")))
            return
        self._go()

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop these branches and their descendants (None: all)."""
        with self._lock:
            if self._is_dead or not self._log.ops:
                return
            self._link.cancels.append(None if branches is None else list(branches))
        self._go()

    def close(self) -> None:
        """No further ops come."""
        with self._lock:
            self._link.is_closed = True
            has_ops = bool(self._log.ops)
        if has_ops:
            self._go()

    def fail_all(self, error: SglangLiteError) -> None:
        """Fail every open op, and what comes later."""
        with self._lock:
            if self._is_dead:
                return
            self._is_dead = True
            open_ops = self._log.fail_open()
        for op in open_ops:
            self._sink(OpFailed(op.id, error))
        if self._is_running:
            shared_loop.call(self._stopped.set)

    def _go(self) -> None:
        with self._lock:
            starts, self._is_running = not self._is_running, True
        if starts:
            shared_loop.start(self._run())
        else:
            shared_loop.call(self._link.wake)

    @property
    def _is_over(self) -> bool:
        with self._lock:
            return self._is_dead or (self._link.is_closed and self._log.num_open == 0)

    async def _run(self) -> None:
        """Until all is done: open or take up the program, read and send; a broken connection is made anew."""
        await self._link.wait_for_more()
        try:
            while not self._is_over:
                try:
                    await self._work()
                except (RefusedError, UnreachableError) as error:
                    self._after_break(error)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._retries.pause_s):
                            await self._stopped.wait()
        except SglangLiteError as error:
            self.fail_all(error)
        except Exception as error:  # noqa: BLE001 - whoever waits for an op must hear of it, whatever it is
            self.fail_all(ExecutionError(f"running a program on {self._http.base_url}: {error!r}"))
        with suppress(SglangLiteError):
            await self._link.leave()

    async def _work(self) -> None:
        """One connection: read on this task, send on another; whichever breaks ends both."""
        reading = self._link.events()
        coming = asyncio.ensure_future(anext(reading))
        stopped = asyncio.ensure_future(self._stopped.wait())
        sending: asyncio.Task[None] | None = None
        try:
            while not self._is_over:
                waited_for: set[asyncio.Future[Any]] = {coming, stopped}
                if sending is not None:
                    waited_for.add(sending)
                await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
                if sending is not None and sending.done():
                    sending.result()  # it ends by errors only
                if not coming.done():
                    return
                try:
                    event_id, data = coming.result()
                except StopAsyncIteration:
                    raise UnreachableError(
                        f"talking to {self._http.base_url}: the stream of events broke off"
                    ) from None
                if sending is None:
                    sending = asyncio.create_task(self._link.send())
                if data == "[DONE]":
                    self._check_end()
                    return
                if data:
                    self._take(event_id, data)
                coming = asyncio.ensure_future(anext(reading))
        finally:
            await _end_task(stopped)
            await _end_task(coming)
            if sending is not None:
                await _end_task(sending)
            await reading.aclose()

    def _check_end(self) -> None:
        if not self._is_over:
            raise ExecutionError(f"running a program on {self._http.base_url}: the server ended it with ops still open")

    def _after_break(self, error: RefusedError | UnreachableError) -> None:
        """Prepare another try.

        Raises:
            SglangLiteError: there is no use in one.
        """
        if isinstance(error, RefusedError):
            is_forgotten = error.answer.status == 404 and self._link.name is not None
            if is_forgotten:
                self._link.name = None
            elif error.answer.status not in (502, 503, 504):
                raise error_of(error.answer, "running a program")
        self._retries.broke(error)

    def _take(self, event_id: str | None, data: str) -> None:
        event = event_from_json(json.loads(data))
        if isinstance(event, OpFailed) and isinstance(event.error, EngineStoppedError):
            self._link.name = None
            raise LostError(f"running a program on {self._http.base_url}: {event.error}")
        with self._lock:
            if event_id is not None:
                self._link.last_event = event_id
            shown = self._log.take(event)
            self._retries.heard(is_new=bool(shown))
            if not shown and (answer := self._log.answer_to(event)) is not None:
                self._link.outbox.append(answer)
                self._link.wake()
        for new in shown:
            self._sink(new)


class _Link:
    """The program as the server knows it. Coroutines and `wake` run on the loop; fields are guarded by the program's lock."""

    def __init__(
        self, http: HttpClient, seed: int, log: OpLog, lock: threading.Lock, on_open: Callable[[], None]
    ) -> None:
        self._http = http
        self._seed = seed
        self._log = log
        self._lock = lock
        self._on_open = on_open
        self._woken = asyncio.Event()
        self._num_acked = 0
        self._num_cancelled = 0
        """How many of `cancels` the server has taken."""
        self._close_was_sent = False
        self.name: str | None = None
        self.outbox: list[Op] = []
        """Ops for the server that it has not confirmed."""
        self.cancels: list[list[int] | None] = []
        """All of the program: a new server is told again."""
        self.is_closed = False
        self.last_event = "0"

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    async def wait_for_more(self) -> None:
        """Most programs end right after their first ops: the end then travels with them."""
        if not self.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_S):
                    await self._woken.wait()

    def events(self) -> AsyncGenerator[tuple[str | None, str], None]:
        """Open the program, or go on reading it. The first item, an empty one, says that the server has it."""
        if self.name is not None:
            return self._resumed(f"/v1/programs/{self.name}/events")
        with self._lock:
            ops, is_closed = self._log.replay(), self.is_closed
            self.outbox = []
            self.last_event = "0"
            self._num_cancelled = 0
        body = {
            "version": VERSION,
            "seed": self._seed,
            "ops": [op_to_json(op) for op in ops],
            "close": is_closed,
            "stream": True,
        }
        events = self._http.events("POST", "/v1/programs", body, {}, SILENCE_S)
        return self._opened(events, len(ops), is_closed=is_closed)

    async def _resumed(self, path: str) -> AsyncGenerator[tuple[str | None, str], None]:
        """The rest of the events, from whichever of the servers behind the address has the program."""
        for others in reversed(range(_NUM_OTHERS)):
            events = self._http.events("GET", path, None, {"Last-Event-ID": self.last_event}, SILENCE_S)
            try:
                async for event_id, data in events:
                    yield (None, "") if event_id == HEADERS_ID else (event_id, data)
                return
            except RefusedError as error:
                if error.answer.status != 404 or not others:
                    raise
            finally:
                await events.aclose()

    async def _opened(
        self, events: HttpEvents, num_ops: int, *, is_closed: bool
    ) -> AsyncGenerator[tuple[str | None, str], None]:
        try:
            async for event_id, data in events:
                if event_id == HEADERS_ID:
                    self.name = json.loads(data)["x-program-id"]
                    self._num_acked, self._close_was_sent = num_ops, is_closed
                    self._on_open()
                yield (None, "") if event_id == HEADERS_ID else (event_id, data)
        finally:
            await events.aclose()

    async def send(self) -> None:
        """Send what comes, in order, until cancelled.

        Raises:
            RefusedError, UnreachableError: it did not arrive; what is not confirmed stays.
        """
        while True:
            self._woken.clear()
            with self._lock:
                ops, closes = list(self.outbox), self.is_closed and not self._close_was_sent
                cancels = self.cancels[self._num_cancelled :]
            if ops or closes:
                body = {"ops": [op_to_json(op) for op in ops], "start": self._num_acked, "close": closes}
                await self._tell("POST", "/ops", body)
                self._num_acked += len(ops)
                self._close_was_sent = self._close_was_sent or closes
                with self._lock:
                    del self.outbox[: len(ops)]
            for branches in cancels:
                await self._tell("POST", "/cancel", {"branches": branches})
                self._num_cancelled += 1
            await self._woken.wait()

    async def leave(self) -> None:
        """Free the program on the server where it has not ended by itself."""
        if self.name is not None and (self._log.num_failed or not self.is_closed):
            await self._tell("DELETE", "", None)

    async def _tell(self, method: str, what: str, body: Any) -> None:
        for others in reversed(range(_NUM_OTHERS)):
            is_first = others == _NUM_OTHERS - 1
            answer = await self._http.request(method, f"/v1/programs/{self.name}{what}", body, is_fresh=not is_first)
            if answer.status < 400:
                return
            if answer.status != 404 or not others:
                raise RefusedError(answer)


async def _end_task(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
