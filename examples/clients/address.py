"""The server's address: the first argument of the command, else the usual one."""

from __future__ import annotations

import sys

DEFAULT = "http://127.0.0.1:30000"


def server_url() -> str:
    """Without `/v1`."""
    return sys.argv[1].rstrip("/") if len(sys.argv) > 1 else DEFAULT
