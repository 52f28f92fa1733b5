"""`RuntimeEndpoint`: programs on a server, as the same ops over HTTP; it knows the routes, not what runs behind them."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

from sglang_lite import env
from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.errors import (
    CancelledError,
    ContextLengthError,
    EngineStoppedError,
    ExecutionError,
    RequestError,
    SglangLiteError,
    UnsupportedError,
)
from sglang_lite.lang.backends.http_client import (
    HEADERS_ID,
    Answer,
    HttpClient,
    HttpEvents,
    RefusedError,
    UnreachableError,
    shared_loop,
)
from sglang_lite.lang.backends.op_log import OpLog
from sglang_lite.lang.backends.remote_rows import RemoteRows
from sglang_lite.op_json import VERSION, error_from_json, event_from_json, op_to_json
from sglang_lite.request_tree import EventSink, Finding, Op, OpFailed, Program, RequestTree, TreeRow

_RETRIES_S = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)
"""Pauses before each try to reach a server that has gone; after the last one the program's open ops fail."""

_PATIENCE_S = 0.002
"""How long the first ops of a program wait for its close."""


class RuntimeEndpoint:
    """A server as a backend.

    Args:
        base_url: its address, `http://host:port`.
        api_key: its key, where it asks for one. None: what `SGLANG_LITE_API_KEY` holds.
        verify: for https, a file or folder of certificates, or False for none; None: the system's.
        chat_template_name: one of SGLang's templates: programs then run as with `SGLANG_LITE_COMPAT=strict:NAME`. None:
            the model's own.

    Raises:
        ExecutionError: no server answers there, or it refuses the key.
        UnsupportedError: the server has no `/v1/programs`.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: str | bool | None = None,
        chat_template_name: str | None = None,
    ) -> None:
        self.chat_template_name = chat_template_name
        self._http = HttpClient(base_url, api_key or env.api_key(), context=_tls_context(base_url, verify))
        self.base_url = self._http.base_url
        self._programs: WeakSet[RemoteProgram] = WeakSet()
        self._rows: WeakSet[RemoteRows] = WeakSet()
        self._is_shut_down = False
        self.model_info: dict[str, Any] = self._json("GET", "/get_model_info")
        if not self.model_info.get("programs"):
            raise UnsupportedError(
                f"connecting to {self.base_url}: the server has no /v1/programs; only servers of sglang_lite have it"
            )

    def get_model_name(self) -> str:
        """The path of the server's model."""
        return str(self.model_info["model_path"])

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> RemoteProgram:
        """Start a program; its events come on a thread of this module. Nothing is sent before the first ops."""
        if self._is_shut_down:
            raise EngineStoppedError(f"opening a program on {self.base_url}: the backend was shut down; make a new one")
        program = RemoteProgram(self._http, sink, secrets.randbits(63) if seed is None else seed)
        self._programs.add(program)
        return program

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
        """Start a program for each row of arguments of `tree`, all with one request (see `request_tree.RowsBackend`)."""
        if self._is_shut_down:
            raise EngineStoppedError(f"opening rows on {self.base_url}: the backend was shut down; make a new one")
        seeds = [secrets.randbits(63) if row.seed is None else row.seed for row in rows]
        remote = RemoteRows(self._http, tree, rows, seeds, _RETRIES_S, error_of)
        self._rows.add(remote)
        remote.start()
        return list(remote.rows)

    def check(self, tree: RequestTree) -> list[Finding]:
        """What the server finds in a tree before it runs (see `request_tree.TreeChecker`)."""
        answer = self._request("POST", "/v1/programs/check", tree.to_json())
        return [Finding(**found) for found in checked(answer, "checking a tree")["findings"]]

    def chat_format(self) -> ChatFormat:
        """How the server's model writes tool calls and thinking, as it said when this object was made."""
        return ChatFormat.from_json(self.model_info.get("chat_format") or {})

    def flush_cache(self) -> bool:
        """Forget the server's prefixes; False while requests run."""
        answer = self._request("POST", "/flush_cache", {})
        if answer.status == 400:
            return False
        return bool(checked(answer, "flushing the cache"))

    def get_server_info(self) -> dict[str, Any]:
        """The server's configuration and counters."""
        return self._json("GET", "/get_server_info")

    def generate(self, prompt: str | list[str], sampling_params: dict[str, Any] | None = None, **fields: Any) -> Any:
        """The reply of `/generate`."""
        body = {"text": prompt, "sampling_params": sampling_params or {}, **fields}
        return checked(self._request("POST", "/generate", body), "generating")

    def cache_prefix(self, text: str) -> None:
        """Compute a prefix so that programs find it."""
        self.generate(text, {"max_new_tokens": 0, "temperature": 0})

    def shutdown(self) -> None:
        """End this object's programs; the server goes on. Idempotent."""
        self._is_shut_down = True
        for program in list(self._programs):
            program.fail_all(EngineStoppedError(f"the backend for {self.base_url} was shut down"))
        for rows in list(self._rows):
            rows.fail_all(EngineStoppedError(f"the backend for {self.base_url} was shut down"))
        shared_loop.call(self._http.close)

    def _json(self, method: str, path: str) -> dict[str, Any]:
        return cast("dict[str, Any]", checked(self._request(method, path, None), f"{method} {path}"))

    def _request(self, method: str, path: str, body: Any) -> Answer:
        future = shared_loop.start(self._http.request(method, path, body))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class RemoteProgram:
    """One program on a server. The op log here is the truth, the server's state a cache of it.

    A server that does not know the program any more gets a new one: what is done already goes in as text, so values stay
    as they are, and at most the ops that ran are done again, with the same seeds.
    """

    def __init__(self, http: HttpClient, sink: EventSink, seed: int) -> None:
        self.seed = seed
        """From which every op without its own seed derives one."""
        self._http = http
        self._sink = sink
        self._lock = threading.Lock()
        self._log = OpLog()
        self._link = _Link(http, seed, self._log, self._lock)
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
        tries = 0
        await self._link.wait_for_more()
        try:
            while not self._is_over:
                await asyncio.sleep(_RETRIES_S[tries])
                try:
                    tries = await self._work(tries)
                except (RefusedError, UnreachableError) as error:
                    tries = self._after_break(error, tries)
        except SglangLiteError as error:
            self.fail_all(error)
        except Exception as error:  # noqa: BLE001 - whoever waits for an op must hear of it, whatever it is
            self.fail_all(ExecutionError(f"running a program on {self._http.base_url}: {error!r}"))
        with suppress(SglangLiteError):
            await self._link.leave()

    async def _work(self, tries: int) -> int:
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
                    return tries
                try:
                    event_id, data = coming.result()
                except StopAsyncIteration:
                    raise UnreachableError(
                        f"talking to {self._http.base_url}: the stream of events broke off"
                    ) from None
                tries = 0
                if sending is None:
                    sending = asyncio.create_task(self._link.send())
                if data == "[DONE]":
                    return self._after_done()
                if data:
                    self._take(event_id, data)
                coming = asyncio.ensure_future(anext(reading))
            return tries
        finally:
            await _end_task(stopped)
            await _end_task(coming)
            if sending is not None:
                await _end_task(sending)
            await reading.aclose()

    def _after_done(self) -> int:
        if not self._is_over:
            raise ExecutionError(f"running a program on {self._http.base_url}: the server ended it with ops still open")
        return 0

    def _after_break(self, error: RefusedError | UnreachableError, tries: int) -> int:
        """How often it was tried now.

        Raises:
            SglangLiteError: there is no use in another try.
        """
        if isinstance(error, RefusedError):
            status = error.answer.status
            if status == 404 and self._link.name is not None:
                self._link.name = None
                return max(tries, 1)
            if status == 503 and b"too_many_programs" in error.answer.body:
                return 2
            if status != 503:
                raise error_of(error.answer, "running a program")
        if tries + 1 >= len(_RETRIES_S):
            raise error
        return tries + 1

    def _take(self, event_id: str | None, data: str) -> None:
        event = event_from_json(json.loads(data))
        with self._lock:
            if event_id is not None:
                self._link.last_event = event_id
            shown = self._log.take(event)
            if not shown and (answer := self._log.answer_to(event)) is not None:
                self._link.outbox.append(answer)
                self._link.wake()
        for new in shown:
            self._sink(new)


class _Link:
    """The program as the server knows it. Coroutines and `wake` run on the loop; fields are guarded by the program's lock."""

    def __init__(self, http: HttpClient, seed: int, log: OpLog, lock: threading.Lock) -> None:
        self._http = http
        self._seed = seed
        self._log = log
        self._lock = lock
        self._woken = asyncio.Event()
        self._num_acked = 0
        self._close_was_sent = False
        self.name: str | None = None
        self.outbox: list[Op] = []
        """Ops for the server that it has not confirmed."""
        self.cancels: list[list[int] | None] = []
        self.is_closed = False
        self.last_event = "0"

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    async def wait_for_more(self) -> None:
        """Most programs end right after their first ops: the end then travels with them."""
        if not self.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._woken.wait()

    def events(self) -> AsyncGenerator[tuple[str | None, str], None]:
        """Open the program, or go on reading it. The first item, an empty one, says that the server has it."""
        if self.name is not None:
            path = f"/v1/programs/{self.name}/events"
            return self._http.events("GET", path, None, {"Last-Event-ID": self.last_event})
        with self._lock:
            ops, is_closed = self._log.replay(), self.is_closed
            self.outbox = []
            self.last_event = "0"
        body = {
            "version": VERSION,
            "seed": self._seed,
            "ops": [op_to_json(op) for op in ops],
            "close": is_closed,
            "stream": True,
        }
        return self._opened(self._http.events("POST", "/v1/programs", body, {}), len(ops), is_closed=is_closed)

    async def _opened(
        self, events: HttpEvents, num_ops: int, *, is_closed: bool
    ) -> AsyncGenerator[tuple[str | None, str], None]:
        try:
            async for event_id, data in events:
                if event_id == HEADERS_ID:
                    self.name = json.loads(data)["x-program-id"]
                    self._num_acked, self._close_was_sent = num_ops, is_closed
                yield (None, "") if event_id == HEADERS_ID else (event_id, data)
        finally:
            await events.aclose()

    async def send(self) -> None:
        """Send what comes, in order, until cancelled.

        Raises:
            RefusedError, UnreachableError: it did not arrive; what is not confirmed stays in the outbox.
        """
        while True:
            self._woken.clear()
            with self._lock:
                ops, closes = list(self.outbox), self.is_closed and not self._close_was_sent
                cancels, self.cancels = self.cancels, []
            if ops or closes:
                body = {"ops": [op_to_json(op) for op in ops], "start": self._num_acked, "close": closes}
                await self._post("ops", body)
                self._num_acked += len(ops)
                self._close_was_sent = self._close_was_sent or closes
                with self._lock:
                    del self.outbox[: len(ops)]
            for branches in cancels:
                await self._post("cancel", {"branches": branches})
            await self._woken.wait()

    async def leave(self) -> None:
        """Free the program on the server where it has not ended by itself."""
        if self.name is not None and (self._log.num_failed or not self.is_closed):
            await self._http.request("DELETE", f"/v1/programs/{self.name}")

    async def _post(self, what: str, body: Any) -> None:
        answer = await self._http.request("POST", f"/v1/programs/{self.name}/{what}", body)
        if answer.status >= 400:
            raise RefusedError(answer)


def checked(answer: Answer, what: str) -> Any:
    """The JSON of a good answer.

    Raises:
        SglangLiteError: what the server said.
    """
    if answer.status >= 400:
        raise error_of(answer, what)
    return answer.json()


def error_of(answer: Answer, what: str) -> SglangLiteError:
    """What a server's refusal means: 4xx is the request's fault."""
    try:
        told: Any = json.loads(answer.body)["error"]
        message, code, kind = str(told["message"]), told.get("code"), told.get("type")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code, kind = answer.body[:500].decode("utf-8", "replace"), None, None
    message = f"{what}: the server answered {answer.status}: {message}"
    if isinstance(kind, str) and kind.endswith("Error"):
        return error_from_json({"type": kind, "message": message})
    if code == "context_length_exceeded":
        return ContextLengthError(message)
    if code == "unsupported":
        return UnsupportedError(message)
    return RequestError(message) if 400 <= answer.status < 500 else ExecutionError(message)


async def _end_task(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


def _tls_context(base_url: str, verify: str | bool | None) -> ssl.SSLContext | None:
    if not base_url.startswith("https:") or verify in (None, True):
        return None
    if isinstance(verify, str):
        is_folder = Path(verify).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
