"""A server on a free port of the loopback, in a thread of the test's process, stopped at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx

from sglang_lite.runtime.server.app import ServerApp, create_app
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.lifecycle import DrainingServer, address_of, bind

TIMEOUT_S = 60.0
PATIENCE_S = 240.0
"""For an answer: the first constraint of a process has its kernels compiled, which takes minutes on a busy machine."""


@dataclass
class LiveServer:
    """A running server. `http`: a client of it."""

    url: str
    app: ServerApp
    server: DrainingServer
    loop: asyncio.AbstractEventLoop
    http: httpx.Client

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)


@contextmanager
def live_server(engine: EnginePort, **settings: object) -> Iterator[LiveServer]:
    """Serve `engine` until the end of the block; running requests get a second.

    Streams carry no comments and programs without a reader live on, however slow the machine, unless `settings` say so.
    """
    patient = ServerConfig(port=0, drain_deadline_s=1.0, heartbeat_s=PATIENCE_S, program_ttl_s=PATIENCE_S)
    config = replace(patient, **settings)  # type: ignore[arg-type]
    app = create_app(engine, config)
    listening = bind(config)
    ready = threading.Event()
    server = DrainingServer(app, config, ready.set)
    loop = asyncio.new_event_loop()

    def run() -> None:
        try:
            loop.run_until_complete(server.serve(sockets=[listening]))
            loop.run_until_complete(_drop_connections(loop))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run, name="live-server")
    thread.start()
    assert ready.wait(TIMEOUT_S), "the server does not start"
    url = address_of(listening)
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as http:
            yield LiveServer(url, app, server, loop, http)
    finally:
        loop.call_soon_threadsafe(server.drain)
        thread.join(TIMEOUT_S)
        listening.close()
        assert not thread.is_alive(), "the server does not stop"


async def _drop_connections(loop: asyncio.AbstractEventLoop) -> None:
    """End connections that the server's shutdown did not see: accepted, but not taken up before it."""
    for _ in range(3):
        await asyncio.sleep(0)
    for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
        transport.abort()
    for _ in range(3):
        await asyncio.sleep(0)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Look again and again until it is true; what never comes true fails."""
    pause = threading.Event()
    for _ in range(6000):
        if is_true():
            return
        pause.wait(0.01)
    raise AssertionError("waited too long")
