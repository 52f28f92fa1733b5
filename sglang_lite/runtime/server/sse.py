"""Server-sent events: a response that ends with its client, and carries a comment through long silences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response

from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.asgi import Receive, Scope, Send, wait_for_disconnect
from sglang_lite.runtime.server.errors import ClientGoneError, body_for, dump, is_anthropic_path

T = TypeVar("T")

DONE = "data: [DONE]\n\n"
_HEARTBEAT = b": still here\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies of the nginx family pass each event on at once
]


def event(data: Any, event_id: int | None = None) -> str:
    """One event: JSON on one line, with an id to resume from if given."""
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}data: {dump(data)}\n\n"


def named_event(name: str, data: Any) -> str:
    """One event with a name of its own."""
    return f"event: {name}\n{event(data)}"


class EventStream(Response):
    """Sends `events` as they come.

    A client that goes away closes the generator at once, whatever it waits for. An error after the start becomes an event.
    """

    def __init__(
        self, events: AsyncGenerator[str, None], heartbeat_s: float, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self._events = events
        self._heartbeat_s = heartbeat_s
        self._more_headers = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *self._more_headers]})
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        coming: asyncio.Future[str] | None = None
        try:
            while True:
                if coming is None:
                    coming = asyncio.ensure_future(anext(self._events))
                await asyncio.wait({coming, gone}, timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    note(scope, is_gone=True)
                    return
                if not coming.done():
                    await send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})
                    continue
                try:
                    text = coming.result()
                except StopAsyncIteration:
                    break
                except Exception as error:  # noqa: BLE001 - the status has been sent: the stream is where it can be told
                    note(scope, error=type(error).__name__)
                    text = _last_event(error, scope["path"])
                    await send({"type": "http.response.body", "body": text.encode()})
                    return
                coming = None
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await cancel(gone)
            if coming is not None:
                await cancel(coming)
            await self._events.aclose()


def _last_event(error: Exception, path: str) -> str:
    body = body_for(error, path)
    return named_event("error", body) if is_anthropic_path(path) else event(body) + DONE


async def cancel(task: asyncio.Future[Any]) -> None:
    """End a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception, StopAsyncIteration):
        await task


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client of `request`, whose body was read, goes away.

    Raises:
        ClientGoneError: it did.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        note(request.scope, is_gone=True)
        raise ClientGoneError
    finally:
        await cancel(gone)
        if not task.done():
            await cancel(task)


async def newest(replies: AsyncIterator[dict[str, Any]]) -> AsyncGenerator[dict[str, Any], None]:
    """The newest reply of each request: replies are cumulative, so a slow reader may skip some and none pile up."""
    waiting: dict[int, dict[str, Any]] = {}
    arrived = asyncio.Event()

    async def pump() -> None:
        async for reply in replies:
            waiting[reply.get("index", 0)] = reply
            arrived.set()

    task = asyncio.create_task(pump())
    task.add_done_callback(lambda _: arrived.set())
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            batch = list(waiting.values())
            waiting.clear()
            for reply in batch:
                yield reply
            if task.done() and not waiting:
                await task
                return
    finally:
        await cancel(task)
        if isinstance(replies, AsyncGenerator):
            await replies.aclose()


async def started(request: Request, events: AsyncGenerator[T, None], patience_s: float) -> AsyncGenerator[T, None]:
    """`events` with the first one there, so that an error before it can still choose the status.

    Where nothing comes for `patience_s`, the stream starts without: the client should hear something.
    """
    first = asyncio.ensure_future(anext(events))
    gone = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({first, gone}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not first.done():
            note(request.scope, is_gone=True)
            raise ClientGoneError
        if first.done() and (error := first.exception()) is not None and not isinstance(error, StopAsyncIteration):
            raise error
    except BaseException:
        await cancel(first)
        await events.aclose()
        raise
    finally:
        await cancel(gone)
    return _continued(first, events)


async def _continued(first: asyncio.Future[T], events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    try:
        try:
            yield await first
        except StopAsyncIteration:
            return
        async for item in events:
            yield item
    finally:
        await cancel(first)
        await events.aclose()
