"""Starts everything that a server consists of: the address, the scheduler process, the application; then serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sglang_lite.errors import SglangLiteError
from sglang_lite.runtime.server.app import create_app
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.gate import GatedApp
from sglang_lite.runtime.server.ipc.host import EngineHost
from sglang_lite.runtime.server.ipc.process import SchedulerProcess
from sglang_lite.runtime.server.lifecycle import DrainingServer, address_of, bind
from sglang_lite.runtime.server.owned import Owner
from sglang_lite.runtime.server.tracing import Spans, spans_of

logger = logging.getLogger("sglang_lite.server")

_HANG_S = 15.0
"""How long a server whose owner has gone may take longer than it was given."""


def launch(
    model_path: str | None,
    settings: dict[str, Any],
    config: ServerConfig,
    say: Callable[[str], None],
    owner: Owner | None = None,
) -> int:
    """Serve until a signal, or the end of the scheduler process, ends it. Returns the exit code.

    Listens at once; requests get 503 until the model is loaded. `owner`: a process that is told when it is, and with whose
    end the server ends.

    Raises:
        RequestError: the address cannot be had, keys cannot be read, a setting is wrong.
        SglangLiteError: the model cannot be loaded.
    """
    config.read_keys()
    spans = spans_of(config.otlp_endpoint)
    listening = bind(config)
    try:
        launcher = _Launcher(model_path, settings, config, say, address_of(listening), owner, spans)
        asyncio.run(launcher.run(listening))
    finally:
        listening.close()
    if launcher.error is not None and not launcher.was_ready:
        raise launcher.error
    return launcher.server.exit_code


class _Launcher:
    """One server's parts while it runs; what the scheduler's threads report is taken to the event loop."""

    def __init__(
        self,
        model_path: str | None,
        settings: dict[str, Any],
        config: ServerConfig,
        say: Callable[[str], None],
        address: str,
        owner: Owner | None,
        spans: Spans | None,
    ) -> None:
        self.error: SglangLiteError | None = None
        self.was_ready = False
        self._model_path = model_path
        self._settings = settings
        self._config = config
        self._say = say
        self._address = address
        self._owner = owner
        self._spans = spans
        self._gate = GatedApp()
        self.server = DrainingServer(self._gate, config, lambda: say(f"listening at {address}, not ready yet"))

    async def run(self, listening: Any) -> None:
        """Start the scheduler process, serve, end both."""
        loop = asyncio.get_running_loop()
        if self._owner is not None:
            patience_s = self._config.drain_delay_s + self._config.drain_deadline_s + _HANG_S

            def on_gone() -> None:
                loop.call_soon_threadsafe(self.server.drain)

            self._owner.watch(on_gone, patience_s)
        self._say(f"loading {self._model_path or 'the embedded model'} ...")

        def spawn(on_ready: Callable[[], None], on_exit: Callable[[int], None]) -> SchedulerProcess:
            return SchedulerProcess(self._model_path, self._settings, say=self._say, on_ready=on_ready, on_exit=on_exit)

        def on_ready() -> None:
            loop.call_soon_threadsafe(self._ready, host)

        def on_end(error: SglangLiteError) -> None:
            loop.call_soon_threadsafe(self._ended, error)

        host = EngineHost(
            spawn,
            restart=self._config.restart,
            on_ready=on_ready,
            on_end=on_end,
        )
        try:
            await self.server.serve(sockets=[listening])
        finally:
            await asyncio.to_thread(host.shutdown)

    def _ready(self, host: EngineHost) -> None:
        if not self._gate.is_open:
            self._gate.open(create_app(host, self._config, lambda: host.pulse.stands_s, self._spans))
        self.was_ready = True
        info = host.info
        self._say(
            f"{info['architecture']}, context {info['context_length']}, KV pool {info['max_total_tokens']} tokens "
            f"({info['kv_bytes'] / 2**20:.0f} MiB), {info['num_threads']} threads; loaded in {info['load_s']:.1f} s"
        )
        self._say(f"ready at {self._address}")
        if self._owner is not None:
            self._owner.ready(self._address)

    def _ended(self, error: SglangLiteError) -> None:
        self.error = error
        if self.was_ready:
            logger.critical("%s; the server ends", error)
        self.server.fail()
