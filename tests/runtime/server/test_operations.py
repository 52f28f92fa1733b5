from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
                response = server.http.get(path, timeout=60)
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


def test_a_profile_is_started_and_stopped(tmp_path: Path) -> None:
    with (
        talking_engine() as (engine, _),
        split_engine(engine) as client,
        live_server(client, profile_folder=str(tmp_path)) as server,
    ):
        started = server.http.post("/start_profile")
        assert started.status_code == 200
        server.post("/generate", {"text": "Hi"})
        stopped = server.http.post("/stop_profile")
        assert stopped.json() == started.json()
        assert Path(stopped.json()["file"]).parent == tmp_path
        assert Path(stopped.json()["file"]).stat().st_size > 0
        assert server.http.post("/stop_profile").status_code == 400
        refused = server.post("/start_profile", {"output_dir": "/etc"})
        assert (refused.status_code, "profile-folder" in refused.text) == (400, True)


def test_what_concerns_all_asks_for_the_admin_key(tmp_path: Path) -> None:
    """A user's key opens the other routes; the admin's opens all. SIGHUP's reload changes who is one."""
    users, admins = tmp_path / "users", tmp_path / "admins"
    users.write_text("user\n")
    admins.write_text("admin\n")
    with (
        talking_engine() as (engine, _),
        split_engine(engine) as client,
        live_server(client, api_key_file=str(users), admin_key_file=str(admins)) as server,
    ):

        def status(path: str, key: str, body: object = None) -> int:
            return server.http.post(path, json=body, headers={"Authorization": f"Bearer {key}"}).status_code

        for path, body in (("/flush_cache", None), ("/stop_profile", None), ("/abort_request", {"abort_all": True})):
            assert status(path, "nobody", body) == 401
            assert status(path, "user", body) == 403
            assert status(path, "admin", body) == (400 if path == "/stop_profile" else 200)
        assert status("/generate", "user", {"text": "Hi"}) == 200
        admins.write_text("another\n")
        server.app.reload_keys()
        assert status("/flush_cache", "admin") == 401
        assert status("/flush_cache", "another") == 200


def test_admin_keys_alone_leave_the_other_routes_open(tmp_path: Path) -> None:
    (tmp_path / "admins").write_text("admin\n")
    with talking_engine() as (engine, _), live_server(engine, admin_key_file=str(tmp_path / "admins")) as server:
        assert server.post("/generate", {"text": "Hi"}).status_code == 200
        assert server.http.post("/flush_cache").status_code == 403
        assert server.http.post("/flush_cache", headers={"Authorization": "Bearer admin"}).status_code == 200


def test_all_requests_can_be_aborted() -> None:
    """Steps are let through one by one while the test waits, so that neither request ends by itself."""
    with talking_engine() as (engine, runner), split_engine(engine) as client, live_server(client) as server:
        gate = runner.gate = threading.Semaphore(0)
        endless = {"text": "Hi", "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}

        def after_a_step(is_true: Callable[[], bool]) -> bool:
            gate.release()
            return is_true()

        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(server.post, "/generate", endless) for _ in range(2)]
            try:
                wait_until(lambda: after_a_step(lambda: engine.snapshot().get("running") == 2))
                aborting = pool.submit(server.post, "/abort_request", {"abort_all": True})
                wait_until(lambda: after_a_step(aborting.done))
            finally:
                gate.release(1000)
            assert aborting.result().json() == {"aborted": 2}
            for one in waiting:
                assert one.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
