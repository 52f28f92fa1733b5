"""Before there is an engine: alive, not ready, and a clear answer for everybody else."""

from __future__ import annotations

import asyncio
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.gate import GatedApp


class FakeApp:
    """What a gate passes on to."""

    def __init__(self) -> None:
        self.in_flight = 3
        self.is_draining = False
        self.calls: list[str] = []

    def drain(self) -> None:
        self.is_draining = True

    def end_programs(self) -> None:
        self.calls.append("end")

    def reload_keys(self) -> None:
        raise RequestError("no keys")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["path"])


def ask(gate: GatedApp, path: str) -> tuple[int, bytes, dict[bytes, bytes]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(gate({"type": "http", "path": path, "headers": []}, receive, send))
    return (sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])) if sent else (0, b"", {})


def test_while_loading_it_lives_and_is_not_ready() -> None:
    gate = GatedApp()
    assert ask(gate, "/livez")[0] == 200
    for path in ("/readyz", "/health", "/generate", "/v1/chat/completions"):
        status, body, headers = ask(gate, path)
        assert status == 503
        assert b"loading its model" in body
        assert headers[b"retry-after"] == b"2"
    assert b'"error"' in ask(gate, "/v1/models")[1]
    assert gate.in_flight == 0


def test_opened_it_passes_everything_on() -> None:
    gate, app = GatedApp(), FakeApp()
    gate.open(app)  # type: ignore[arg-type]
    ask(gate, "/livez")
    gate.end_programs()
    assert app.calls == ["/livez", "end"]
    assert gate.in_flight == 3


def test_an_end_that_began_before_goes_on() -> None:
    gate, app = GatedApp(), FakeApp()
    gate.drain()
    gate.reload_keys()
    gate.end_programs()
    gate.open(app)  # type: ignore[arg-type]
    assert app.is_draining
    assert gate.is_draining
