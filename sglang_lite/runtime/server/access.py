"""Around every request: its id, its line in the log, the count of those under way; it never sees a text by itself."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from typing import Any

from sglang_lite.runtime.server.asgi import App, Message, Receive, Scope, Send, headers_of, send_json
from sglang_lite.runtime.server.errors import CLIENT_GONE, HttpError, body_for
from sglang_lite.runtime.server.log_lines import FACTS as RECORD_FACTS
from sglang_lite.runtime.server.log_lines import REQUEST, RequestIds
from sglang_lite.runtime.server.tracing import Spans

logger = logging.getLogger("sglang_lite.server.access")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACE_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context, version 00

FACTS = "sglang_lite.facts"
"""Key in the ASGI scope of what a route tells the log: sizes, counts, reasons."""


class AccessLog:
    """One line a request: id, method, path, status, time, and what the route noted; a span as well, where `spans` are wanted.

    `in_flight`: HTTP requests under way. `num_disconnects`: clients that went away before the end of their answer.
    """

    def __init__(self, app: App, spans: Spans | None = None) -> None:
        self._app = app
        self._spans = spans
        self.in_flight = 0
        self.num_requests = 0
        self.num_disconnects = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and write its line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ids = request_ids(scope)
        facts: dict[str, Any] = {}
        scope[FACTS] = facts
        token = REQUEST.set((ids, facts))
        started_s, started_ns = time.perf_counter(), time.time_ns()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *ids.headers()]
            await send(message)

        self.in_flight += 1
        try:
            await self._app(scope, receive, noting)
        except Exception:
            logger.exception("request failed")
            if not status:
                error = HttpError(500, f"an internal error; the server's log has it under id={ids.id}")
                await send_json(noting, 500, body_for(error, scope["path"]))
        finally:
            self.in_flight -= 1
            self.num_requests += 1
            if facts.pop("is_gone", False):
                self.num_disconnects += 1
                status = CLIENT_GONE
            total_ms = round((time.perf_counter() - started_s) * 1000, 1)
            head = {"method": scope["method"], "path": scope["path"][:200], "status": status, "ms": total_ms}
            _write(ids, head, facts)
            if self._spans is not None:
                name = f"{scope['method']} {_shown(scope['path'])}"
                self._spans.record(name, _parent(scope), started_ns, time.time_ns(), status, {"id": ids.id, **facts})
            REQUEST.reset(token)


def _write(ids: RequestIds, head: dict[str, Any], facts: dict[str, Any]) -> None:
    text = f"{ids} {head['method']} {_shown(head['path'])} status={head['status']} ms={head['ms']:.1f}"
    noted = "".join(f" {name}={_shown_value(value)}" for name, value in facts.items())
    logger.info("%s", text + noted, extra={RECORD_FACTS: ids.to_dict() | head | facts})


def note(scope: Scope, **facts: Any) -> None:
    """Put facts (never texts) on the log line of this request."""
    scope.get(FACTS, {}).update(facts)


def facts_here() -> dict[str, Any]:
    """What will stand on the log line of the request that this task serves; outside of one, nowhere."""
    found = REQUEST.get()
    return {} if found is None else found[1]


def request_ids(scope: Scope) -> RequestIds:
    """The request's own id, where it brings a sane one, and its trace."""
    given = headers_of(scope, b"x-request-id")
    is_sane = bool(given) and _SANE_ID.fullmatch(given[0]) is not None
    trace = headers_of(scope, b"traceparent")
    is_trace = bool(trace) and _TRACE_PARENT.fullmatch(trace[0]) is not None
    return RequestIds(given[0].decode() if is_sane else secrets.token_hex(8), trace[0].decode() if is_trace else None)


def _parent(scope: Scope) -> dict[str, str]:
    found = {name: headers_of(scope, name.encode()) for name in ("traceparent", "tracestate")}
    return {name: values[0].decode("latin-1") for name, values in found.items() if values}


def _shown(path: str) -> str:
    """The path on one line, cut where it is absurdly long."""
    return (
        path.encode("ascii", "backslashreplace")
        .decode()[:200]
        .replace("\n", "\\n")
        .replace("\r", "\\r")
        .replace(" ", "%20")
    )


def _shown_value(value: Any) -> str:
    """A value on one line, quoted where it could be taken for more than one."""
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, str | int | float) and text.isprintable() and not set(text) & set(' ="'):
        return text
    return json.dumps(value, ensure_ascii=True, default=str)
