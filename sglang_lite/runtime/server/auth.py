"""Who may come in: API keys, checked before any route is looked up; it knows no route but the open ones."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from sglang_lite.runtime.server.asgi import App, Receive, Scope, Send, headers_of, send_json
from sglang_lite.runtime.server.errors import HttpError, body_for, is_anthropic_path

OPEN_PATHS = frozenset({"/health", "/livez", "/readyz"})
"""What answers without a key: probes, which tell nothing but a status."""


ADMIN_PATHS = frozenset({"/flush_cache", "/start_profile", "/stop_profile"})
"""What asks for an admin key where there are any: it concerns all who use the server."""

IS_ADMIN = "sglang_lite.is_admin"
"""Key in the ASGI scope: whoever asks runs the server."""


class KeyRing:
    """The keys that are valid now; only their digests are kept."""

    def __init__(self, read: Callable[[], frozenset[bytes]]) -> None:
        self._read = read
        self._digests: tuple[bytes, ...] = ()
        self.reload()

    @property
    def is_open(self) -> bool:
        """There are no keys: everybody may come in."""
        return not self._digests

    def reload(self) -> None:
        """Read the keys again; where that fails, those of before stay.

        Raises:
            RequestError: see `ServerConfig.read_keys`.
        """
        self._digests = tuple(sha256(key).digest() for key in self._read())

    def accepts(self, authorization: list[bytes]) -> bool:
        """Whether exactly one Authorization header was sent and bears a valid key; takes equally long for all wrong ones."""
        if len(authorization) != 1:
            return False
        scheme, _, key = authorization[0].partition(b" ")
        given = sha256(key).digest()
        is_valid = False
        for digest in self._digests:
            is_valid |= hmac.compare_digest(given, digest)
        return is_valid and scheme.lower() == b"bearer"


class KeyCheck:
    """Answers 401 where a key is asked for and no valid one was sent, 403 where it had to be an admin key.

    Without admin keys whoever may come in runs the server.
    """

    def __init__(
        self, app: App, keys: KeyRing, open_paths: frozenset[str] = OPEN_PATHS, admin_keys: KeyRing | None = None
    ) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = open_paths
        self._admin_keys = admin_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or refuse it."""
        if scope["type"] == "http":
            path, authorization = scope["path"], headers_of(scope, b"authorization")
            if not authorization and is_anthropic_path(path):  # where that API has its key
                authorization = [b"Bearer " + key for key in headers_of(scope, b"x-api-key")]
            is_asked = not self._keys.is_open and path not in self._open_paths
            if is_asked and not self._keys.accepts(authorization):
                await send_json(send, 401, _refusal(path), [(b"www-authenticate", b"Bearer")])
                return
            admins = self._admin_keys
            scope[IS_ADMIN] = admins is None or admins.is_open or admins.accepts(authorization)
            if path in ADMIN_PATHS and not scope[IS_ADMIN]:
                await send_json(send, 403, body_for(not_admin(), path))
                return
        await self._app(scope, receive, send)


def not_admin() -> HttpError:
    """The refusal of what only those may who run the server."""
    return HttpError(
        403, "this asks for an admin key; send 'Authorization: Bearer KEY' with one of them", code="not_admin"
    )


def _refusal(path: str) -> dict[str, Any]:
    error = HttpError(
        401,
        "no valid API key was sent; send 'Authorization: Bearer KEY' with one of the server's keys",
        code="invalid_api_key",
    )
    return body_for(error, path)
