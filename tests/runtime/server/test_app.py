"""The whole application: what comes in wrong, who comes in, who goes away."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import TalkingRunner, talking_engine

JSON = {"content-type": "application/json"}
POST_ROUTES = ["/generate", "/v1/completions", "/v1/chat/completions", "/v1/programs", "/tokenize"]

BAD_BODIES = {
    "empty": b"",
    "broken": b"{:",
    "list": b"[]",
    "string": b'"x"',
    "null": b"null",
    "truncated": b'{"prompt": "a',
    "nan": b'{"prompt": "a", "temperature": NaN}',
    "infinity": b'{"prompt": "a", "temperature": 1e999}',
    "not utf-8": b'{"prompt": "\xff"}',
    "utf-16": '{"prompt": "a"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"prompt": "a"}',
    "deep": b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "lone surrogate": b'{"text": "\\ud800", "prompt": "\\ud800"}',
}


@pytest.mark.parametrize("path", POST_ROUTES)
@pytest.mark.parametrize("name", list(BAD_BODIES))
def test_a_broken_body_is_the_clients_fault(server: LiveServer, path: str, name: str) -> None:
    response = server.http.post(path, content=BAD_BODIES[name], headers=JSON)
    assert 400 <= response.status_code < 500, response.text
    assert response.json()["error"]["message"]
    assert ("param" in response.json()["error"]) == path.startswith("/v1")


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, JSON | {"content-encoding": "gzip"}])
def test_other_kinds_of_content_are_refused(server: LiveServer, headers: dict[str, str]) -> None:
    assert server.http.post("/generate", content=b'{"text": "a"}', headers=headers).status_code == 415


@pytest.mark.parametrize("path", POST_ROUTES)
def test_reading_what_is_written_is_405(server: LiveServer, path: str) -> None:
    response = server.http.get(path)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"]


def test_what_this_server_does_not_do_is_refused_by_name(server: LiveServer) -> None:
    for path, name in [("/v1/embeddings", "embeddings"), ("/v1/rerank", "reranking"), ("/encode", "embeddings")]:
        response = server.http.post(path, json={"input": "x"})
        assert response.status_code == 400, path
        assert f"{name} " in response.json()["error"]["message"]
    assert server.http.post("/v1/embeddings", json={}).json()["error"]["code"] == "unsupported"


def test_no_route_is_404_in_json(server: LiveServer) -> None:
    for path in ("/nowhere", "/v1/nowhere", "/generate/", "//v1/models", "/docs", "/V1/models"):
        response = server.http.get(path)
        assert (response.status_code, bool(response.json()["error"]["message"])) == (404, True), path


def test_after_all_this_the_server_answers_as_before(server: LiveServer) -> None:
    assert server.http.get("/health").status_code == 200
    assert server.post("/generate", {"text": "Hi"}).json()["text"] == "Hello there."


def test_an_id_is_echoed_or_given(server: LiveServer) -> None:
    assert server.http.get("/livez", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert server.http.get("/nowhere", headers={"x-request-id": "abc-2"}).headers["x-request-id"] == "abc-2"
    odd = server.http.get("/livez", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]
    assert odd
    assert " " not in odd


def test_a_request_is_one_line_in_the_log_and_no_text(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sglang_lite.server.access"):
        server.post("/generate", {"text": "a very secret text"}, **{"x-request-id": "one-line"})
        # the lines of requests before may come late as well
        wait_until(lambda: any("id=one-line " in line for line in caplog.messages))
        assert server.http.get("/livez").status_code == 200
    (line,) = [line for line in caplog.messages if "id=one-line " in line]
    assert line.startswith("id=one-line POST /generate status=200 ms=")
    assert "prompt_tokens=18" in line
    assert "completion_tokens=13" in line
    assert "secret" not in line
    assert "Hello" not in line


# --- who comes in ---


@pytest.fixture(scope="module")
def locked() -> Iterator[LiveServer]:
    with talking_engine() as (engine, _), live_server(engine, api_keys=("key-one", "schlüssel")) as server:
        yield server


OPEN = {"/health", "/livez", "/readyz"}


def routes_of(server: LiveServer) -> list[tuple[str, str]]:
    """(method, path) of every route that the application has."""
    schema = server.app.api.openapi()["paths"]
    found = [(method.upper(), path) for path, methods in schema.items() for method in methods]
    assert len(found) > 20
    return [*found, ("GET", "/openapi.json")]


def test_every_route_but_the_probes_asks_for_a_key(locked: LiveServer) -> None:
    for method, path in routes_of(locked):
        expected = 200 if path in OPEN else 401
        path = path.replace("{name}", "x")
        response = locked.http.request(method, path)
        assert response.status_code == expected, (method, path)
        if expected == 401:
            assert response.json()["error"]["message"]
            assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer wrong")],
        [("authorization", "Bearer key-on")],
        [("authorization", "Bearer key-one2")],
        [("authorization", "Bearer KEY-ONE")],
        [("authorization", "key-one")],
        [("authorization", "Basic key-one")],
        [("authorization", "Bearer key-one"), ("authorization", "Bearer key-one")],
        [("x-api-key", "key-one")],
        [("authorization", b"Bearer \xff\xfe")],
        [("authorization", "Bearer")],
    ],
)
def test_no_other_form_of_a_key_opens(locked: LiveServer, headers: list[tuple[str, str]]) -> None:
    assert locked.http.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "path", ["//v1/models", "/v1/../generate", "/V1/models", "/v1/models/", "/health/", "/health/../v1/models"]
)
def test_tricks_with_paths_do_not_open(locked: LiveServer, path: str) -> None:
    host = urlsplit(locked.url)
    with socket.create_connection((host.hostname, host.port), 30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = raw.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("key", ["key-one", "schlüssel"])
def test_each_key_opens_and_is_in_no_line(locked: LiveServer, key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        headers = {"authorization": f"Bearer {key}".encode()}
        assert locked.http.get("/v1/models", headers=headers).status_code == 200
        assert locked.http.post("/generate", json={"text": "Hi"}, headers=headers).status_code == 200
        assert locked.http.get("/v1/nowhere", headers=headers).status_code == 404
    assert key not in caplog.text


def test_browsers_of_other_sites_stay_out_unless_named(server: LiveServer) -> None:
    origin = {"origin": "https://evil.example"}
    assert "access-control-allow-origin" not in server.http.get("/v1/models", headers=origin).headers
    with talking_engine() as (engine, _), live_server(engine, cors_origins=("https://good.example",)) as named:
        good = named.http.get("/v1/models", headers={"origin": "https://good.example"})
        assert good.headers["access-control-allow-origin"] == "https://good.example"
        assert "access-control-allow-origin" not in named.http.get("/v1/models", headers=origin).headers


# --- who goes away ---

ENDLESS = {"max_new_tokens": 400, "ignore_eos": True}


@pytest.fixture
def slow() -> Iterator[tuple[LiveServer, TalkingRunner, threading.Semaphore]]:
    """A server whose engine makes a step for each permit; two requests run at a time."""
    with talking_engine(rows=2) as (engine, runner), live_server(engine) as server:
        runner.gate = threading.Semaphore(0)
        yield server, runner, runner.gate
        runner.gate.release(100_000)


def send(server: LiveServer, body: object, path: str = "/generate") -> socket.socket:
    """Begin a request on a connection of its own."""
    host = urlsplit(server.url)
    raw = socket.create_connection((host.hostname, host.port), 60)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    raw.sendall(head.encode() + data)
    return raw


def seen(server: LiveServer, count: int) -> None:
    wait_until(lambda: server.app.log.in_flight == count)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"text": "a", "stream": True, "sampling_params": ENDLESS}),
        ("/generate", {"text": "a", "sampling_params": ENDLESS}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "ignore_eos": True, "n": 2}),
    ],
)
def test_a_client_that_goes_away_frees_its_request_within_two_steps(
    slow: tuple[LiveServer, TalkingRunner, threading.Semaphore], path: str, body: dict[str, object]
) -> None:
    server, runner, gate = slow
    raw = send(server, body, path)
    if body.get("stream"):
        gate.release(3)
        got = b""
        while b"data: " not in got:
            got += raw.recv(65536)
    else:
        gate.release(3)
    wait_until(lambda: runner.num_steps >= 3)
    raw.close()
    seen(server, 0)
    steps = runner.num_steps
    gate.release(2)
    info = server.app.service.engine.get_server_info()
    assert (info["running"], info["waiting"], info["prefilling"]) == (0, 0, 0)
    assert runner.num_steps <= steps + 2
    assert info["kv"]["private_pages"] == info["kv"]["protected_pages"] == 0


def test_a_storm_of_disconnects_leaves_nothing(slow: tuple[LiveServer, TalkingRunner, threading.Semaphore]) -> None:
    """Some stream, some wait for all, most are still queued when their clients go."""
    server, _, gate = slow
    sockets = [send(server, {"text": f"{i} x", "stream": i % 2 == 0, "sampling_params": ENDLESS}) for i in range(30)]
    seen(server, 30)
    gate.release(2)
    for raw in sockets:
        raw.close()
    seen(server, 0)
    gate.release(10)
    info = server.app.service.engine.get_server_info()
    assert (info["running"], info["waiting"]) == (0, 0)
    kv = info["kv"]
    assert kv["free_pages"] + kv["evictable_pages"] == kv["total_pages"]
    assert server.app.log.num_disconnects == 30
    gate.release(1000)
    assert server.post("/generate", {"text": "Hi"}).json()["text"] == "Hello there."
    assert server.http.post("/flush_cache").status_code == 200
    kv = server.app.service.engine.get_server_info()["kv"]
    assert kv["free_pages"] == kv["total_pages"]


def test_a_silent_stream_carries_comments(slow: tuple[LiveServer, TalkingRunner, threading.Semaphore]) -> None:
    server, _, gate = slow
    with talking_engine() as (engine, runner), live_server(engine, heartbeat_s=0.05) as quick:
        runner.gate = threading.Semaphore(0)
        with quick.http.stream("POST", "/generate", json={"text": "a", "stream": True}) as response:
            parts = response.iter_bytes()
            assert next(parts) == b": still here\n\n"
            runner.gate.release(1000)
            assert b"".join(parts).endswith(b"data: [DONE]\n\n")
    gate.release(1)
    assert server.http.get("/livez").status_code == 200


def test_a_reader_that_does_not_read_stops_nobody(server: LiveServer) -> None:
    raw = send(server, {"text": "a", "stream": True, "sampling_params": ENDLESS})
    assert raw.recv(1, socket.MSG_PEEK)  # its answer has begun; nothing of it is read
    assert server.post("/generate", {"text": "Hi"}).json()["text"] == "Hello there."
    raw.close()
    wait_until(lambda: server.app.log.in_flight == 0)


def test_a_large_body_is_refused_before_it_is_read() -> None:
    with talking_engine() as (engine, _), live_server(engine, max_body_bytes=1000, body_timeout_s=0.2) as server:
        assert server.post("/generate", {"text": "x" * 2000}).status_code == 413

        def parts() -> Iterator[bytes]:
            for _ in range(100):
                yield b" " * 100

        try:
            response = server.http.post("/generate", content=parts(), headers=JSON)
            assert response.status_code == 413
        except httpx.TransportError:
            pass  # the server closed before the client had sent all: it is refused either way
        host = urlsplit(server.url)
        with socket.create_connection((host.hostname, host.port), 30) as raw:
            raw.sendall(
                b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
            )
            assert raw.makefile("rb").read().startswith(b"HTTP/1.1 408")
        assert server.http.get("/health").status_code == 200
