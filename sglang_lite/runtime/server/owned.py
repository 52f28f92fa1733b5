"""A server that another process of this machine owns: settings come on standard input, what becomes of it goes out.

The first line of the input is a JSON object of settings. Each line of the output is one, too: `{"ready": URL, "pid": N}`
or `{"error": ...}` in the form of `op_json`. The server ends when its input does.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from sglang_lite.errors import RequestError, SglangLiteError
from sglang_lite.op_json import error_to_json


class Owner:
    """The process that started this server, by its two pipes."""

    def __init__(self, from_owner: BinaryIO, to_owner: BinaryIO) -> None:
        self._in = from_owner
        self._out = to_owner

    def settings(self) -> dict[str, Any]:
        """The first line.

        Raises:
            RequestError: it is no JSON object.
        """
        line = self._in.readline()
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RequestError(f"reading the settings of an owned server: {line[:80]!r}, expected a JSON object")
        return found

    def ready(self, url: str) -> None:
        """Requests may come."""
        self._tell({"ready": url, "pid": os.getpid()})

    def failed(self, error: SglangLiteError) -> None:
        """There will be no server."""
        self._tell({"error": error_to_json(error)})

    def watch(self, on_gone: Callable[[], None], patience_s: float) -> None:
        """Call `on_gone` when the owner closes its end; a server that then hangs for `patience_s` is ended."""

        def wait() -> None:
            while os.read(self._in.fileno(), 64):  # unbuffered: a held lock of the buffer would disturb the exit
                continue
            last = threading.Timer(patience_s, os._exit, (1,))
            last.daemon = True
            last.start()
            on_gone()

        threading.Thread(target=wait, name="owner-watch", daemon=True).start()

    def _tell(self, facts: dict[str, Any]) -> None:
        try:
            self._out.write(json.dumps(facts).encode() + b"\n")
            self._out.flush()
        except BrokenPipeError:
            return  # it has gone; the watch sees that
