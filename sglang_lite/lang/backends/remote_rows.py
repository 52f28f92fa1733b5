"""Rows of one tree on a server: the tree and all arguments are one request, the events of all rows one stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sglang_lite.errors import CancelledError, ExecutionError, ProgramError, SglangLiteError
from sglang_lite.lang.backends.http_client import (
    HEADERS_ID,
    Answer,
    HttpClient,
    HttpEvents,
    RefusedError,
    UnreachableError,
    shared_loop,
)
from sglang_lite.op_json import event_from_json
from sglang_lite.request_tree import Event, Op, OpDone, OpFailed, RequestTree, TreeRow


class RemoteRow:
    """One row's program (see `request_tree.Program`); nothing can be appended to it."""

    def __init__(self, rows: RemoteRows, number: int, row: TreeRow) -> None:
        self._rows = rows
        self._number = number
        self.row = row
        self.open_ops = set(rows.tree.ops)

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
    """All rows of one tree. A server that does not know them any more gets those again that have not ended.

    Args:
        retries_s: pauses before each try to reach a server that has gone.
        error_of: what an answer that refuses means.
    """

    def __init__(
        self,
        http: HttpClient,
        tree: RequestTree,
        rows: Sequence[TreeRow],
        seeds: Sequence[int],
        retries_s: Sequence[float],
        error_of: Callable[[Answer, str], SglangLiteError],
    ) -> None:
        self.tree = tree
        self._http = http
        self._retries_s = retries_s
        self._error_of = error_of
        self._seeds = list(seeds)
        self._lock = threading.Lock()
        self._name: str | None = None
        self._sent: list[int] = []
        """Numbers of the rows that the server has, in its order."""
        self._last_event = "0"
        self._is_dead = False
        self._cancelled: set[int] = set()
        self.rows = [RemoteRow(self, number, row) for number, row in enumerate(rows)]

    def start(self) -> None:
        """Send everything; never waits."""
        shared_loop.start(self._run())

    def cancel(self, number: int) -> None:
        """Stop one row: its open ops fail."""
        with self._lock:
            self._cancelled.add(number)
            name, sent = self._name, list(self._sent)
        self._fail_row(number, CancelledError("the row was cancelled by its program"))
        if name is not None and number in sent:
            shared_loop.start(self._cancel_there(name, sent.index(number)))

    async def _cancel_there(self, name: str, number: int) -> None:
        with suppress(SglangLiteError, RefusedError, UnreachableError):
            await self._http.request("POST", f"/v1/programs/{name}/cancel", {"rows": [number]})

    def fail_all(self, error: SglangLiteError) -> None:
        """Fail every open op of every row."""
        with self._lock:
            self._is_dead = True
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
        """Until all rows have ended: open them or go on reading; a broken connection is made anew."""
        tries = 0
        try:
            while not self._is_over:
                await asyncio.sleep(self._retries_s[tries])
                try:
                    if await self._read():
                        tries = 0
                    elif not self._is_over:
                        raise UnreachableError(f"talking to {self._http.base_url}: the stream of events broke off")
                except (RefusedError, UnreachableError) as error:
                    tries = self._after_break(error, tries)
        except SglangLiteError as error:
            self.fail_all(error)
        except Exception as error:  # noqa: BLE001 - whoever waits for an op must hear of it, whatever it is
            self.fail_all(ExecutionError(f"running rows on {self._http.base_url}: {error!r}"))
        if self._name is not None and self._cancelled:
            with suppress(SglangLiteError, RefusedError, UnreachableError):
                await self._http.request("DELETE", f"/v1/programs/{self._name}")

    async def _read(self) -> bool:
        """One connection, to its end; True: all rows ended, or something came."""
        came = False
        events = self._events()
        try:
            async for event_id, data in events:
                if event_id == HEADERS_ID:
                    self._name = json.loads(data)["x-program-id"]
                    continue
                if data == "[DONE]":
                    if not self._is_over:
                        raise ExecutionError(f"running rows on {self._http.base_url}: the server ended them too early")
                    return True
                if data:
                    came = True
                    self._take(event_id, json.loads(data))
                if self._is_over:
                    return True
        finally:
            await events.aclose()
        return came

    def _events(self) -> HttpEvents:
        if self._name is not None:
            path = f"/v1/programs/{self._name}/events"
            return self._http.events("GET", path, None, {"Last-Event-ID": self._last_event})
        with self._lock:
            self._sent = [number for number, row in enumerate(self.rows) if row.open_ops]
            self._last_event = "0"
            body = self.tree.to_json() | {
                "rows": [dict(self.rows[number].row.arguments) for number in self._sent],
                "seeds": [self._seeds[number] for number in self._sent],
                "close": True,
                "stream": True,
            }
        return self._http.events("POST", "/v1/programs", body, {})

    def _take(self, event_id: str | None, data: dict[str, Any]) -> None:
        row = self.rows[self._sent[int(data.pop("row"))]]
        event: Event = event_from_json(data)
        with self._lock:
            if event_id is not None:
                self._last_event = event_id
            is_new = event.op in row.open_ops
            if isinstance(event, OpDone | OpFailed):
                row.open_ops.discard(event.op)
        if is_new:
            row.row.sink(event)

    def _after_break(self, error: RefusedError | UnreachableError, tries: int) -> int:
        """How often it was tried now.

        Raises:
            SglangLiteError: there is no use in another try.
        """
        if isinstance(error, RefusedError):
            status = error.answer.status
            if status == 404 and self._name is not None:
                self._name = None
                return max(tries, 1)
            if status != 503:
                raise self._error_of(error.answer, "running rows")
        if tries + 1 >= len(self._retries_s):
            raise error
        return tries + 1
