from __future__ import annotations

import re

from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import talking_engine


def test_metrics_have_names_types_and_numbers(server: LiveServer) -> None:
    server.post("/generate", {"text": "Hi"})
    response = server.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    values = dict(
        re.fullmatch(r'(\S+)\{model_name="talking"\} (\S+)', line).groups() for line in lines if line[0] != "#"
    )  # type: ignore[union-attr]
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "cache_hit_rate"):
        assert float(values[f"sglang:{name}"]) >= 0
        assert any(line.startswith(f"# TYPE sglang:{name} gauge") for line in lines)
    assert float(values["sglang:generation_tokens_total"]) >= 13
    assert int(values["sglang_lite:http_requests_in_flight"]) == 1


def test_a_draining_server_lives_and_is_not_ready() -> None:
    with talking_engine() as (engine, _), live_server(engine) as server:
        assert server.http.get("/readyz").status_code == 200
        server.app.service.phase = "draining"
        assert server.http.get("/livez").status_code == 200
        for path in ("/readyz", "/health"):
            response = server.http.get(path)
            assert (response.status_code, response.json()["error"]["message"]) == (503, "the server is draining")
        server.app.service.phase = "ready"


def test_a_stopped_engine_is_not_healthy() -> None:
    with talking_engine() as (engine, _), live_server(engine) as server:
        engine.shutdown()
        assert server.http.get("/health").status_code == 503
        response = server.post("/generate", {"text": "Hi"})
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert "shut down" in response.json()["error"]["message"]
