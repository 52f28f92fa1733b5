"""Starting and ending, in processes of their own: what a supervisor sees."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.lifecycle import address_of, bind
from tests.support.live_server import live_server, wait_until
from tests.support.talking_engine import talking_engine

TIMEOUT_S = 60
CODE = """
import sys, threading
from sglang_lite.runtime.server.app import create_app
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.lifecycle import bind, serve
from tests.support.talking_engine import talking_engine
config = ServerConfig(port=0, drain_deadline_s=float(sys.argv[1]))
with talking_engine() as (engine, runner):
    runner.gate = threading.Semaphore(int(sys.argv[2]))
    code = serve(create_app(engine, config), config, bind(config), lambda url: print(url, flush=True))
    runner.gate.release(100000)
raise SystemExit(code)
"""
ENDLESS = {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}


@contextmanager
def process(deadline_s: float, permits: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own; ended, if need be by force, with the block."""
    command = [sys.executable, "-c", CODE, str(deadline_s), str(permits)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate(timeout=TIMEOUT_S)


def test_a_running_request_ends_before_the_server() -> None:
    """SIGTERM: no new connection is taken, what runs goes on to its end, the exit code is 0."""
    with (
        process(TIMEOUT_S, 100_000) as (running, url),
        httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as http,
    ):
        with http.stream("POST", "/generate", json=ENDLESS) as response:
            parts = response.iter_bytes()
            next(parts)
            running.send_signal(signal.SIGTERM)
            assert b"".join(parts).endswith(b"data: [DONE]\n\n")
        assert running.wait(TIMEOUT_S) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/livez", trust_env=False)


def test_a_second_interrupt_ends_at_once() -> None:
    with process(10_000, 3) as (running, url), httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as http:
        with contextlib.suppress(httpx.TransportError), http.stream("POST", "/generate", json=ENDLESS) as response:
            parts = response.iter_bytes()
            next(parts)
            running.send_signal(signal.SIGINT)
            wait_until(lambda: http.get("/readyz").status_code == 503)
            running.send_signal(signal.SIGINT)
            assert not b"".join(parts).endswith(b"data: [DONE]\n\n")
        assert running.wait(TIMEOUT_S) == 130


def test_while_it_drains_it_is_alive_and_not_ready_and_takes_nothing_new() -> None:
    """A probe and a client see 503 and not a closed port; a program that runs may still be ended."""
    with talking_engine() as (engine, runner):
        runner.gate = threading.Semaphore(3)
        with live_server(engine, drain_deadline_s=float(TIMEOUT_S)) as server:
            program = server.post("/v1/programs", {"ops": []}).json()["id"]
            response = server.http.send(server.http.build_request("POST", "/generate", json=ENDLESS), stream=True)
            parts = response.iter_bytes()
            next(parts)
            server.loop.call_soon_threadsafe(server.server.drain)
            wait_until(lambda: server.http.get("/readyz").status_code == 503)
            assert server.http.get("/livez").status_code == 200
            assert server.http.get("/health").status_code == 503
            wait_until(lambda: server.post("/generate", {"text": "a"}).status_code == 503)
            for path in ("/generate", "/v1/chat/completions", "/v1/programs", "/v1/programs/check"):
                refused = server.post(path, {})
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "2"), path
                assert refused.json()["error"]["message"]
            assert server.http.get("/metrics").status_code == 200
            assert server.http.delete(f"/v1/programs/{program}").status_code == 200
            runner.gate.release(1000)
            assert b"".join(parts).endswith(b"data: [DONE]\n\n")
            response.close()


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RequestError, match=f"127.0.0.1:{port}.*--port"):
            bind(ServerConfig(port=port))
    with pytest.raises(RequestError, match="starting the server"):
        bind(ServerConfig(host="no.such.host.invalid"))


def test_any_free_port() -> None:
    with bind(ServerConfig(port=0)) as bound:
        assert address_of(bound).startswith("http://127.0.0.1:")


def test_answers_are_not_held_back_by_the_network() -> None:
    """On an accepted connection asyncio sets TCP_NODELAY, which it does only where the socket names its protocol."""

    async def look() -> int:
        async def taken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with bind(ServerConfig(port=0)) as bound:
            async with await asyncio.start_server(taken, sock=bound):
                _, writer = await asyncio.open_connection(*bound.getsockname()[:2])
                value = await found
                writer.close()
                return value

    assert asyncio.run(look())


def test_the_deadline_ends_what_does_not_end() -> None:
    """The client reads on until the server has gone: nothing but the deadline ends its request."""
    with talking_engine() as (engine, runner), httpx.Client(timeout=TIMEOUT_S, trust_env=False) as http:
        runner.gate = threading.Semaphore(3)
        with live_server(engine, drain_deadline_s=0.5) as server:
            response = http.send(http.build_request("POST", f"{server.url}/generate", json=ENDLESS), stream=True)
            parts = response.iter_bytes()
            next(parts)
        with contextlib.suppress(httpx.TransportError):
            assert not b"".join(parts).endswith(b"data: [DONE]\n\n")
        runner.gate.release(1000)
        assert engine.get_server_info()["running"] == 0
