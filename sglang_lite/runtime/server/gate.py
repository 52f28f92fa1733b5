"""The server before it has an engine: alive, not ready; later it passes everything on. It knows no route of the API."""

from __future__ import annotations

from sglang_lite.runtime.server.access import request_ids
from sglang_lite.runtime.server.app import ServerApp
from sglang_lite.runtime.server.asgi import Receive, Scope, Send, send_json
from sglang_lite.runtime.server.errors import HttpError, body_for

_RETRY_AFTER_S = b"2"


class GatedApp:
    """Answers `/livez` from the first moment, and everything else with 503 until `open` was called."""

    def __init__(self) -> None:
        self._app: ServerApp | None = None
        self._is_draining = False

    @property
    def is_open(self) -> bool:
        """There is an application behind it."""
        return self._app is not None

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return 0 if self._app is None else self._app.in_flight

    @property
    def is_draining(self) -> bool:
        """The end has begun."""
        return self._is_draining

    def open(self, app: ServerApp) -> None:
        """From here on requests go to `app`; call on the event loop."""
        self._app = app
        if self._is_draining:
            app.drain()

    def drain(self) -> None:
        """Be not ready from here on."""
        self._is_draining = True
        if self._app is not None:
            self._app.drain()

    def refuse_new(self) -> None:
        """Turn new work away; without an application everything is."""
        if self._app is not None:
            self._app.refuse_new()

    def end_programs(self) -> None:
        """Stop every program."""
        if self._app is not None:
            self._app.end_programs()

    def reload_keys(self) -> None:
        """Read the API keys again; without an application they are read when it comes."""
        if self._app is not None:
            self._app.reload_keys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _answer_while_loading(scope, send)


async def _answer_while_loading(scope: Scope, send: Send) -> None:
    headers = request_ids(scope).headers()
    if scope["path"] == "/livez":
        await send_json(send, 200, {"status": "loading"}, headers)
        return
    error = HttpError(503, "the server is loading its model; try again in a moment", code="not_ready")
    body = body_for(error, scope["path"])
    await send_json(send, 503, body, [(b"retry-after", _RETRY_AFTER_S), *headers])
