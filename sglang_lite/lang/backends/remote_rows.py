"""Rows of one tree on a server: the tree and all arguments are one request, the events of all rows one stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, ProgramError, SglangLiteError
from sglang_lite.lang.backends.http_client import (
    HEADERS_ID,
    HttpClient,
    HttpEvents,
    RefusedError,
    UnreachableError,
    shared_loop,
)
from sglang_lite.lang.backends.op_log import OpLog
from sglang_lite.lang.backends.remote_program import SILENCE_S, LostError, RemoteProgram
from sglang_lite.lang.backends.retries import Patience, Retries
from sglang_lite.lang.backends.server_answers import error_of
from sglang_lite.op_json import event_from_json
from sglang_lite.request_tree import Event, Op, OpDone, OpFailed, RequestTree, TreeRow


class RemoteRow:
    """One row's program (see `request_tree.Program`); nothing can be appended to it."""

    def __init__(self, rows: RemoteRows, number: int, row: TreeRow) -> None:
        self._rows = rows
        self._number = number
        self.row = row
        self.open_ops = set(rows.tree.ops)
        self.events: list[Event] = []
        """What came of it, as long as it has not ended."""

    def append(self, ops: Sequence[Op]) -> None:
        """Fail what comes: the tree is whole.

        Raises:
            ProgramError: there are ops.
        """
        if ops:
            raise ProgramError(f"appending op {ops[0].id} to a row of a template: its tree is whole")

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop the row; a part of it cannot be stopped alone.

        Raises:
            ProgramError: branches are named.
        """
        if branches is not None:
            raise ProgramError(f"cancelling branches {list(branches)} of a row of a template: cancel the row")
        self._rows.cancel(self._number)

    def close(self) -> None:
        """Nothing: it is closed from the beginning."""


class RemoteRows:
    """All rows of one tree, opened with one request.

    Where the server does not know them any more, each row that has not ended goes on as a program of its own, from what
    came of it.
    """

    def __init__(
        self, http: HttpClient, tree: RequestTree, rows: Sequence[TreeRow], seeds: Sequence[int], patience: Patience
    ) -> None:
        self.tree = tree
        self._http = http
        self._patience = patience
        self._retries = Retries(patience)
        self._seeds = list(seeds)
        self._lock = threading.Lock()
        self._name: str | None = None
        self._last_event = "0"
        self._is_dead = False
        self._cancelled: set[int] = set()
        self._alone: dict[int, RemoteProgram] = {}
        """Rows that go on as programs of their own."""
        self.rows = [RemoteRow(self, number, row) for number, row in enumerate(rows)]

    def start(self) -> None:
        """Send everything; never waits."""
        shared_loop.start(self._run())

    def cancel(self, number: int) -> None:
        """Stop one row: its open ops fail."""
        with self._lock:
            self._cancelled.add(number)
            name, program = self._name, self._alone.get(number)
        if program is not None:
            program.cancel()
        self._fail_row(number, CancelledError("the row was cancelled by its program"))
        if name is not None and program is None:
            shared_loop.start(self._cancel_there(name, number))

    async def _cancel_there(self, name: str, number: int) -> None:
        with suppress(SglangLiteError):
            await self._http.request("POST", f"/v1/programs/{name}/cancel", {"rows": [number]})

    def fail_all(self, error: SglangLiteError) -> None:
        """Fail every open op of every row."""
        with self._lock:
            self._is_dead = True
        for program in list(self._alone.values()):
            program.fail_all(error)
        for number in range(len(self.rows)):
            self._fail_row(number, error)

    def _fail_row(self, number: int, error: SglangLiteError) -> None:
        row = self.rows[number]
        with self._lock:
            failed, row.open_ops = [op for op in self.tree.ops if op in row.open_ops], set[int]()
        for op in failed:
            row.row.sink(OpFailed(op, error))

    @property
    def _is_over(self) -> bool:
        with self._lock:
            return self._is_dead or not any(row.open_ops for row in self.rows)

    async def _run(self) -> None:
        """Until all rows have ended, or go on alone: open them or go on reading; a broken connection is made anew."""
        try:
            while not self._is_over:
                try:
                    await self._read()
                except (RefusedError, UnreachableError) as error:
                    if self._is_lost(error):
                        self._go_on_alone()
                        return
                    self._retries.broke(error)
                    await asyncio.sleep(self._retries.pause_s)
        except SglangLiteError as error:
            self.fail_all(error)
        except Exception as error:  # noqa: BLE001 - whoever waits for an op must hear of it, whatever it is
            self.fail_all(ExecutionError(f"running rows on {self._http.base_url}: {error!r}"))
        if self._name is not None and self._cancelled:
            with suppress(SglangLiteError):
                await self._http.request("DELETE", f"/v1/programs/{self._name}")

    def _is_lost(self, error: RefusedError | UnreachableError) -> bool:
        """Whether the server has the rows no more.

        Raises:
            SglangLiteError: there is no use in another try.
        """
        if isinstance(error, LostError):
            return True
        if isinstance(error, RefusedError):
            if error.answer.status == 404 and self._name is not None:
                return True
            if error.answer.status not in (502, 503, 504):
                raise error_of(error.answer, "running rows")
        return False

    def _go_on_alone(self) -> None:
        for number, row in enumerate(self.rows):
            with self._lock:
                if not row.open_ops or self._is_dead:
                    continue
                log = OpLog()
                try:
                    log.add(self.tree.bound(row.row.arguments))
                except ProgramError:  # the server fails those one by one
                    log.add(list(self.tree.ops.values()))
                for event in row.events:
                    log.take(event)
                program = RemoteProgram(
                    self._http, partial(self._take, number), self._seeds[number], self._patience, log
                )
                self._alone[number] = program
            program.close()

    async def _read(self) -> None:
        """One connection, to its end.

        Raises:
            UnreachableError, RefusedError: it ended too early, or was refused.
        """
        events = self._events()
        try:
            async for event_id, data in events:
                if event_id == HEADERS_ID:
                    self._name = json.loads(data)["x-program-id"]
                elif data == "[DONE]":
                    if not self._is_over:
                        raise ExecutionError(f"running rows on {self._http.base_url}: the server ended them too early")
                elif data:
                    self._retries.heard(is_new=True)
                    self._take_data(event_id, json.loads(data))
                if self._is_over:
                    return
        finally:
            await events.aclose()
        raise UnreachableError(f"talking to {self._http.base_url}: the stream of events broke off")

    def _events(self) -> HttpEvents:
        if self._name is not None:
            path = f"/v1/programs/{self._name}/events"
            return self._http.events("GET", path, None, {"Last-Event-ID": self._last_event}, SILENCE_S)
        body = self.tree.to_json() | {
            "rows": [dict(row.row.arguments) for row in self.rows],
            "seeds": self._seeds,
            "close": True,
            "stream": True,
        }
        return self._http.events("POST", "/v1/programs", body, {}, SILENCE_S)

    def _take_data(self, event_id: str | None, data: dict[str, Any]) -> None:
        number = int(data.pop("row"))
        event = event_from_json(data)
        if isinstance(event, OpFailed) and isinstance(event.error, EngineStoppedError):
            raise LostError(f"running rows on {self._http.base_url}: {event.error}")
        with self._lock:
            if event_id is not None:
                self._last_event = event_id
            row = self.rows[number]
            row.events.append(event)
        self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        row = self.rows[number]
        with self._lock:
            is_new = event.op in row.open_ops
            if isinstance(event, OpDone | OpFailed):
                row.open_ops.discard(event.op)
            if not row.open_ops:
                row.events = []
        if is_new:
            row.row.sink(event)
