from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sglang_lite.runtime.server.access import AccessLog, note


def call(app: Any, path: str = "/x", headers: list[tuple[bytes, bytes]] | None = None) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers or []}

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        await AccessLog(app)(scope, receive, send)

    asyncio.run(run())
    return sent


async def answer(scope: Any, receive: Any, send: Any) -> None:
    note(scope, tokens=3)
    await send({"type": "http.response.start", "status": 204, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b""})


def test_a_line_has_what_the_route_noted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        sent = call(answer, "/a b\nid=forged", [(b"x-request-id", b"mine")])
    assert sent[0]["headers"] == [(b"a", b"b"), (b"x-request-id", b"mine")]
    line = caplog.messages[-1]
    assert line.startswith("id=mine GET /a%20b\\nid=forged status=204 ")
    assert line.endswith(" tokens=3")


@pytest.mark.parametrize("given", [b"a\nb", b"", b"x" * 200, b"\xff"])
def test_an_id_that_could_forge_a_line_is_replaced(given: bytes) -> None:
    ((_, shown),) = [
        item for item in call(answer, headers=[(b"x-request-id", given)])[0]["headers"] if item[0] == b"x-request-id"
    ]
    assert shown != given
    assert shown.isalnum()


def test_a_fault_of_ours_is_500_in_json_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("inside")

    sent = call(broken, "/v1/x")
    assert sent[0]["status"] == 500
    assert b"inside" not in sent[1]["body"]
    assert dict(sent[0]["headers"])[b"x-request-id"] in sent[1]["body"]
    assert "inside" in caplog.text
