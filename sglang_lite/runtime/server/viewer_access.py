"""Who sees what on the page: the mode, the admin key, and that the address asked for is this machine's; it knows no route."""

from __future__ import annotations

import ipaddress
from typing import Literal

from fastapi import Request

from sglang_lite.runtime.server.auth import KeyRing
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.errors import HttpError

ViewerMode = Literal["off", "stats", "full"]


def is_loopback(host: str) -> bool:
    """Only this machine reaches the address."""
    if host in ("localhost", ""):
        return host == "localhost"
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def viewer_mode(config: ServerConfig) -> ViewerMode:
    """What the settings say; without a word, everything on loopback and nothing elsewhere."""
    match config.viewer:
        case "off" | "stats" | "full":
            return config.viewer
        case _:
            return "full" if is_loopback(config.host) else "off"


class ViewerAccess:
    """Decides for each request.

    Texts are for the admin key. Where there are no keys at all and only this machine reaches the server, whoever asks
    is taken to be its owner.
    """

    def __init__(self, config: ServerConfig, keys: KeyRing, admin_keys: KeyRing) -> None:
        self.mode: ViewerMode = viewer_mode(config)
        self._is_local = is_loopback(config.host)
        self._keys = keys
        self._admin_keys = admin_keys

    def check(self, request: Request) -> None:
        """A page of another site must not reach a server of this machine by a name that it points here.

        Raises:
            HttpError: 403.
        """
        if self._is_local and not is_loopback(request.url.hostname or ""):
            raise HttpError(
                403, f"the viewer of this machine was asked as {request.url.hostname!r}; use its own address"
            )

    def sees_texts(self, request: Request) -> bool:
        """The asker may read what others wrote and were answered."""
        if self.mode != "full":
            return False
        if self._admin_keys.is_open:
            return self._keys.is_open and self._is_local
        given = [value.encode("latin-1") for value in request.headers.getlist("authorization")]
        return self._admin_keys.accepts(given)
