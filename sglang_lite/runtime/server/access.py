"""Around every request: its id, its line in the log, the count of those under way; it never sees a text."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any

from sglang_lite.runtime.server.asgi import App, Message, Receive, Scope, Send, headers_of, send_json
from sglang_lite.runtime.server.errors import CLIENT_GONE, HttpError, body_for

logger = logging.getLogger("sglang_lite.server.access")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")

FACTS = "sglang_lite.facts"
"""Key in the ASGI scope of what a route tells the log: sizes, counts, reasons."""


class AccessLog:
    """One line a request: id, method, path, status, time, and what the route noted.

    `in_flight`: HTTP requests under way. `num_disconnects`: clients that went away before the end of their answer.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.in_flight = 0
        self.num_requests = 0
        self.num_disconnects = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and write its line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        facts: dict[str, Any] = {}
        scope[FACTS] = facts
        started_s = time.perf_counter()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        self.in_flight += 1
        try:
            await self._app(scope, receive, noting)
        except Exception:
            logger.exception("request id=%s failed", request_id.decode())
            if not status:
                error = HttpError(500, "an internal error; the server's log has it")
                await send_json(noting, 500, body_for(error, scope["path"]))
        finally:
            self.in_flight -= 1
            self.num_requests += 1
            if facts.pop("is_gone", False):
                self.num_disconnects += 1
                status = CLIENT_GONE
            noted = "".join(f" {name}={value}" for name, value in facts.items())
            logger.info(
                "id=%s %s %s status=%d ms=%.1f%s",
                request_id.decode(),
                scope["method"],
                _shown(scope["path"]),
                status,
                (time.perf_counter() - started_s) * 1000,
                noted,
            )


def note(scope: Scope, **facts: Any) -> None:
    """Put facts (never texts) on the log line of this request."""
    scope.get(FACTS, {}).update(facts)


def _shown(path: str) -> str:
    """The path on one line, cut where it is absurdly long."""
    return (
        path.encode("ascii", "backslashreplace")
        .decode()[:200]
        .replace("\n", "\\n")
        .replace("\r", "\\r")
        .replace(" ", "%20")
    )


def _request_id(scope: Scope) -> bytes:
    given = headers_of(scope, b"x-request-id")
    if given and _SANE_ID.fullmatch(given[0]):
        return given[0]
    return secrets.token_hex(8).encode()
