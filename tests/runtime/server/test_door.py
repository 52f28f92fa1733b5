"""The door of a server that ends, apart from the server: which paths still go through."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sglang_lite.runtime.server.door import Door


def ask(door: Door, path: str, kind: str = "http") -> int:
    """The status; 0: it went through."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(door({"type": kind, "path": path, "headers": []}, receive, send))
    return sent[0]["status"] if sent else 0


async def through(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers nothing."""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 0),
        ("/readyz", 0),
        ("/health", 0),
        ("/metrics", 0),
        ("/abort_request", 0),
        ("/v1/programs/p", 0),
        ("/v1/programs/p/ops", 0),
        ("/v1/programs", 503),
        ("/v1/programs/check", 503),
        ("/generate", 503),
        ("/v1/chat/completions", 503),
        ("/nowhere", 503),
    ],
)
def test_what_goes_on_passes_a_closed_door(path: str, status: int) -> None:
    door = Door(through)
    assert ask(door, path) == 0
    door.is_closed = True
    assert ask(door, path) == status


def test_what_is_no_request_passes() -> None:
    door = Door(through)
    door.is_closed = True
    assert ask(door, "/generate", "lifespan") == 0
