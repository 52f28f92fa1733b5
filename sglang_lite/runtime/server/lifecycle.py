"""A server from its first line on the screen to its exit: signals, draining, the end; it knows no route."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

import uvicorn

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.asgi import Receive, Scope, Send
from sglang_lite.runtime.server.config import ServerConfig

logger = logging.getLogger("sglang_lite.server")

_KEEP_ALIVE_S = 75
_LAST_WORDS_S = 1
"""How long connections may take to end once nothing runs, or the deadline has passed."""
_POLL_S = 0.05


class Served(Protocol):
    """The application as its life is seen: `ServerApp`, or a `GatedApp` before it."""

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        ...

    @property
    def is_draining(self) -> bool:
        """The end has begun."""
        ...

    def drain(self) -> None:
        """Be not ready from here on."""
        ...

    def refuse_new(self) -> None:
        """Turn new work away; what runs goes on."""
        ...

    def end_programs(self) -> None:
        """Stop every program."""
        ...

    def reload_keys(self) -> None:
        """Read the API keys again, or raise `RequestError`."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        ...


class DrainingServer(uvicorn.Server):
    """Ends in two steps: not ready (new requests are still taken for a while), then no new ones until the deadline.

    In both it answers probes, with 503 where they ask whether it is ready. SIGTERM or SIGINT begins that; a second SIGINT ends at once. SIGHUP reads the API keys again.
    """

    def __init__(self, app: Served, config: ServerConfig, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LAST_WORDS_S,
            )
        )
        self._app = app
        self._delay_s = config.drain_delay_s
        self._deadline_s = config.drain_deadline_s
        self._end: asyncio.Task[None] | None = None
        self._on_ready = on_ready
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is open; programs end with the server."""
        await super().shutdown(sockets)
        self._app.end_programs()

    def drain(self) -> None:
        """Begin the end; call on the event loop."""
        if self._app.is_draining:
            return
        self._app.drain()
        logger.info("draining: %d requests under way", self._app.in_flight)
        asyncio.get_running_loop().call_later(self._delay_s, self._stop_taking)

    def fail(self) -> None:
        """End now, with exit code 1: there is no engine any more; call on the event loop."""
        self.exit_code = 1
        self.drain()
        self.should_exit = True

    def _stop_taking(self) -> None:
        self._app.refuse_new()
        self._end = asyncio.get_running_loop().create_task(self._exit_when_idle())

    async def _exit_when_idle(self) -> None:
        """Once nothing is under way, or the deadline has passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline_s):
                while self._app.in_flight:
                    await asyncio.sleep(_POLL_S)
        self.should_exit = True

    def _on_signal(self, number: int) -> None:
        if self._app.is_draining and number == signal.SIGINT:
            self.should_exit = self.force_exit = True
            self.exit_code = 130
        else:
            self.drain()

    def _on_hangup(self) -> None:
        try:
            self._app.reload_keys()
            logger.info("the API keys were read again")
        except RequestError as error:
            logger.error("%s; the keys of before stay", error)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take the signals of the process while serving (on its main thread only) and give them back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGTERM: lambda: self._on_signal(signal.SIGTERM),
            signal.SIGINT: lambda: self._on_signal(signal.SIGINT),
            signal.SIGHUP: self._on_hangup,
        }

        def handler(number: int, _: FrameType | None) -> None:
            loop.call_soon_threadsafe(handlers[number])

        before = {number: signal.signal(number, handler) for number in handlers}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket's address, taken before anything slow, so that a port in use is told at once.

    Raises:
        RequestError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # The protocol is named: asyncio sends small packets at once (TCP_NODELAY) only on sockets whose protocol says TCP, and
    # without that each answer on a kept connection waits 40 ms for the client's acknowledgement.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((config.host, config.port))
    except OSError as error:
        taken.close()
        raise RequestError(
            f"starting the server: {config.host}:{config.port}: {error.strerror or error}; choose another --port or --host"
        ) from error
    return taken


def serve(app: Served, config: ServerConfig, listening: socket.socket, on_listening: Callable[[str], None]) -> int:
    """Serve until a signal ends it; `on_listening` gets the address. Returns the exit code."""
    server = DrainingServer(app, config, lambda: on_listening(address_of(listening)))
    asyncio.run(server.serve(sockets=[listening]))
    return server.exit_code


def address_of(listening: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
