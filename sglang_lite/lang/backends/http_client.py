"""A small HTTP/1.1 client on asyncio: pooled connections, JSON in and out, server-sent events; it knows no route.

All connections of the process live on one event loop on one daemon thread, however many programs read from servers.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from sglang_lite.errors import ExecutionError, RequestError

T = TypeVar("T")

_MAX_IDLE = 8
_MAX_LINE = 1 << 26
"""Bytes of one event: log-probability lists of long texts are long."""


HttpEvents: TypeAlias = AsyncGenerator[tuple[str | None, str], None]
HEADERS_ID = "headers"
"""In place of an event's id (which are numbers): its data are the response's headers."""


class UnreachableError(ExecutionError):
    """No answer came from the server."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ExecutionError: it is none.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise ExecutionError(f"reading a server's answer: no JSON, but {self.body[:200]!r}") from None


class BackgroundLoop:
    """An event loop on a daemon thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Future[Any]] = set()
        """A loop holds its tasks weakly: without these, one that waits could be collected in the middle of its work."""

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` on the loop; the future may be waited for on any other thread."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` on the loop soon."""
        self._started().call_soon_threadsafe(function)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="sglang_lite-http", daemon=True).start()
            return self._loop


shared_loop = BackgroundLoop()
"""The loop of the process."""


class _Connection:
    """One socket; `is_fresh` until the first answer came through it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_fresh = True

    def close(self) -> None:
        """Close without waiting."""
        self.writer.close()


class HttpClient:
    """Requests to one server. The coroutines run on `shared_loop`.

    Args:
        base_url: `http://host:port` or `https://...`; a path in it goes before every request's.
        api_key: sent as a bearer token.
        connect_s: how long a connection may take.
        context: TLS settings; None: the system's.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        connect_s: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"connecting to {base_url!r}: expected a URL such as http://127.0.0.1:30000")
        self.base_url = base_url.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._netloc = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._connect_s = connect_s
        self._headers = {"User-Agent": "sglang_lite", "Accept": "application/json, text/event-stream"}
        if api_key is not None:
            if not api_key.isascii() or not api_key.isprintable():
                raise RequestError(f"connecting to {base_url}: the API key has characters that no header can carry")
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._idle: list[_Connection] = []
        weakref.finalize(self, shared_loop.call, partial(_close_all, self._idle)).atexit = False

    async def request(self, method: str, path: str, body: Any = None, *, is_fresh: bool = False) -> Answer:
        """One request and its whole answer, whatever the status. A connection that the server had closed is replaced.

        Args:
            is_fresh: on a new connection, which a balancer may give to another server.

        Raises:
            UnreachableError: no answer came.
        """
        while True:
            connection = await (self._open() if is_fresh else self._take())
            try:
                status, headers = await self._send(connection, method, path, body, {})
                data = b"".join([part async for part in _body(connection.reader, headers)])
            except (OSError, EOFError, ValueError, LookupError) as error:
                connection.close()
                if connection.is_fresh:
                    raise self._unreachable(error) from error
                continue
            except BaseException:
                connection.close()
                raise
            self._give_back(connection, headers)
            return Answer(status, headers, data)

    async def events(
        self, method: str, path: str, body: Any, headers: dict[str, str], silence_s: float | None = None
    ) -> HttpEvents:
        """(id, data) of each server-sent event; before them (`HEADERS_ID`, the response's headers as JSON).

        Args:
            silence_s: without any line for so long the connection counts as broken.

        Raises:
            RefusedError: the answer is no stream; it holds the answer.
            UnreachableError: the connection broke.
        """
        connection = await self._open()
        try:
            status, got = await self._send(connection, method, path, body, headers)
            if status != 200 or "text/event-stream" not in got.get("content-type", ""):
                data = b"".join([part async for part in _body(connection.reader, got)])
                raise RefusedError(Answer(status, got, data))
            yield HEADERS_ID, json.dumps(got)
            event_id: str | None = None
            async with aclosing(_body(connection.reader, got)) as parts, aclosing(_lines(parts)) as lines:
                async for line in _prompt(lines, silence_s):
                    if line.startswith("id:"):
                        event_id = line[3:].strip()
                    elif line.startswith("data:"):
                        yield event_id, line[5:].strip()
        except (OSError, EOFError, ValueError, LookupError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close what idles; call on the loop."""
        _close_all(self._idle)

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                connection.is_fresh = False
                return connection
            connection.close()
        return await self._open()

    async def _open(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._context, limit=_MAX_LINE
                )
        except (OSError, TimeoutError) as error:
            raise self._unreachable(error) from error
        return _Connection(reader, writer)

    def _give_back(self, connection: _Connection, headers: dict[str, str]) -> None:
        keeps = headers.get("connection", "").lower() != "close" and len(self._idle) < _MAX_IDLE
        if keeps and ("content-length" in headers or "chunked" in headers.get("transfer-encoding", "")):
            self._idle.append(connection)
        else:
            connection.close()

    async def _send(
        self, connection: _Connection, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, dict[str, str]]:
        content = b"" if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        fields = {"Host": self._netloc, **self._headers, **headers}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        connection.writer.write(f"{method} {self._path}{path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content)
        await connection.writer.drain()
        while True:
            status_line = (await connection.reader.readuntil(b"\n")).split(None, 2)
            status = int(status_line[1])
            answer: dict[str, str] = {}
            while line := (await connection.reader.readuntil(b"\n")).strip():
                name, _, value = line.decode("latin-1").partition(":")
                answer[name.strip().lower()] = value.strip()
            if status >= 200:  # what is below announces the answer
                return status, answer

    def _unreachable(self, error: BaseException) -> UnreachableError:
        return UnreachableError(
            f"talking to {self.base_url}: {type(error).__name__}: {error}; is a server running there?"
        )


def _close_all(connections: list[_Connection]) -> None:
    while connections:
        connections.pop().close()


class RefusedError(ExecutionError):
    """A server gave another answer than the one that was asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"a server answered {answer.status}: {answer.body[:500].decode('utf-8', 'replace')}")
        self.answer = answer


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncGenerator[bytes, None]:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await reader.readuntil(b"\n")).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readuntil(b"\n")
        while (await reader.readuntil(b"\n")).strip():
            continue
    elif "content-length" in headers:
        if length := int(headers["content-length"]):
            yield await reader.readexactly(length)
    else:
        while part := await reader.read(1 << 16):
            yield part


async def _lines(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")


async def _prompt(lines: AsyncGenerator[str, None], silence_s: float | None) -> AsyncGenerator[str, None]:
    """The lines, each of which has to come within `silence_s` (else `TimeoutError`)."""
    while True:
        try:
            async with asyncio.timeout(silence_s):
                line = await anext(lines)
        except StopAsyncIteration:
            return
        yield line
