"""Who still comes in while a server ends: probes, and what belongs to work under way; it knows no more of a route than its path."""

from __future__ import annotations

from sglang_lite.runtime.server.asgi import App, Receive, Scope, Send, send_json
from sglang_lite.runtime.server.auth import OPEN_PATHS
from sglang_lite.runtime.server.errors import HttpError, body_for

_STILL = OPEN_PATHS | {"/metrics", "/abort_request"}
_PROGRAM = "/v1/programs/"
_RETRY_AFTER_S = b"2"


class Door:
    """Passes requests on; once it is closed, new work gets 503, and programs that run may be read, appended to and ended."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or turn it away."""
        if not self.is_closed or scope["type"] != "http" or _goes_on(scope["path"]):
            await self._app(scope, receive, send)
            return
        error = HttpError(503, "the server ends and takes no new requests; ask another one", code="not_ready")
        headers = [(b"retry-after", _RETRY_AFTER_S), (b"connection", b"close")]
        await send_json(send, 503, body_for(error, scope["path"]), headers)


def _goes_on(path: str) -> bool:
    return path in _STILL or (path.startswith(_PROGRAM) and path != f"{_PROGRAM}check")
