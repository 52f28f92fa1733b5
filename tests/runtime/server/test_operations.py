from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.support.live_server import live_server, wait_until
from tests.support.split_engine import split_engine
from tests.support.talking_engine import talking_engine


def test_probes_and_metrics_answer_while_the_scheduler_is_in_a_long_step() -> None:
    """The step waits for a permit that never comes; whoever asks for the state of things does not wait with it."""
    with talking_engine() as (engine, runner), split_engine(engine) as client, live_server(client) as server:
        runner.gate = threading.Semaphore(0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.post, "/generate", {"text": "Hi"})
            wait_until(lambda: engine.progress()[1])
            for path in ("/livez", "/readyz", "/health", "/metrics"):
                response = server.http.get(path, timeout=10)
                assert response.status_code == 200
            assert "sglang:num_running_reqs" in response.text
            assert not waiting.done()
            runner.gate.release(1000)
            assert waiting.result().status_code == 200


def test_a_scheduler_that_stands_still_is_not_alive() -> None:
    with talking_engine() as (engine, _), live_server(engine, watchdog_timeout_s=5.0) as server:
        server.app.service.stands_s = lambda: 4.0
        assert server.http.get("/livez").status_code == 200
        server.app.service.stands_s = lambda: 6.0
        assert server.http.get("/livez").status_code == 503


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
