"""The few words of ASGI that are spoken below the framework; they know no route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from sglang_lite.runtime.server.errors import dump

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def headers_of(scope: Scope, name: bytes) -> list[bytes]:
    """All values of one header; `name` in lower case."""
    return [value for key, value in scope["headers"] if key == name]


async def send_json(send: Send, status: int, content: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """A whole JSON response."""
    body = dump(content).encode()
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone; call once the body was read."""
    while (await receive())["type"] != "http.disconnect":
        continue
