"""What a request's line in the log says of its generation, and when it says texts."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from sglang_lite.runtime.server.log_lines import FACTS
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import talking_engine

SECRET = "My secret prompt"


def facts(caplog: pytest.LogCaptureFixture, request_id: str) -> dict[str, Any]:
    """Of the line of this request; it is written after the answer, and so are those of requests before."""

    def found() -> list[dict[str, Any]]:
        lines = [getattr(record, FACTS, None) for record in caplog.records]
        return [line for line in lines if line is not None and line["id"] == request_id]

    wait_until(lambda: bool(found()))
    return found()[-1]


def ask(server: LiveServer, request_id: str, **more: Any) -> None:
    params = {"temperature": 0, "max_new_tokens": 4}
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-Id": request_id}
    reply = server.http.post("/generate", json={"text": SECRET, "sampling_params": params, **more}, headers=headers)
    assert reply.headers["x-request-id"] == request_id
    assert reply.headers["traceparent"] == headers["traceparent"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_line_has_sizes_times_reuse_and_finish_but_no_text(
    server: LiveServer, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    with caplog.at_level(logging.INFO):
        ask(server, f"stream-{stream}", stream=stream)
        line = facts(caplog, f"stream-{stream}")
    assert (line["path"], line["trace"]) == ("/generate", "0af7651916cd43dd8448eb211c80319c")
    assert (line["status"], line["prompt_tokens"], line["completion_tokens"]) == (200, len(SECRET), 4)
    assert (line["finish"], line["cached_tokens"] >= 0) == ("length", True)
    assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["ms"] + 50
    assert "secret" not in caplog.text
    assert "Hell" not in caplog.text


@pytest.mark.parametrize(("level", "shown"), [(1, []), (2, ["prompt", "output"]), (3, ["prompt", "output"])])
def test_levels_add_parameters_then_texts(caplog: pytest.LogCaptureFixture, level: int, shown: list[str]) -> None:
    long = "x" * 300
    with (
        caplog.at_level(logging.INFO),
        talking_engine() as (engine, _),
        live_server(engine, log_requests_level=level) as server,
    ):
        server.post(
            "/generate", {"text": long, "sampling_params": {"max_new_tokens": 4}}, **{"X-Request-Id": f"level-{level}"}
        )
        line = facts(caplog, f"level-{level}")
    assert line["params"] == {"max_new_tokens": 4}
    assert [name for name in ("prompt", "output") if name in line] == shown
    if level == 2:
        assert line["prompt"] == "x" * 200 + " ..."
        assert line["output"] == ["Hell"]
    if level == 3:
        assert line["prompt"] == long


def test_an_error_has_the_id_too(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        reply = server.post("/generate", {"txt": 1}, **{"X-Request-Id": "wrong"})
        line = facts(caplog, "wrong")
    assert (reply.status_code, reply.headers["x-request-id"]) == (400, "wrong")
    assert (line["path"], line["status"]) == ("/generate", 400)
    assert json.dumps(line)
