"""An engine in another process that comes back after it died, as one `EnginePort`; owns which process is current."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from sglang_lite.errors import EngineStoppedError, SglangLiteError
from sglang_lite.request_tree import EventSink, Finding, Program, RequestTree, TreeRow
from sglang_lite.runtime.server.ipc.client import EngineClient
from sglang_lite.runtime.server.ipc.process import Pulse
from sglang_lite.runtime.text.tokenizer import Tokenizer

logger = logging.getLogger("sglang_lite.server")

MAX_QUICK_DEATHS = 3
"""Deaths in a row, each sooner than `QUICK_S` after being ready (or before it), that end the attempts."""

QUICK_S = 30.0


class ChildProcess(Protocol):
    """A scheduler process, see `SchedulerProcess`."""

    @property
    def client(self) -> EngineClient | None:
        """Set from being ready on."""
        ...

    @property
    def info(self) -> dict[str, Any]:
        """What it said of itself when it was ready."""
        ...

    @property
    def error(self) -> SglangLiteError | None:
        """Why it could not start."""
        ...

    @property
    def pulse(self) -> Pulse:
        """Whether it moves."""
        ...

    def stop(self) -> None:
        """End it, and wait."""
        ...


Spawn = Callable[[Callable[[], None], Callable[[int], None]], ChildProcess]
"""Start a process, given what it calls when it is ready and when it has ended."""


class EngineHost:
    """Keeps one scheduler process running.

    Args:
        spawn: starts one.
        restart: after its death start another; else the death is final.
        on_ready: called on each start's end, the first and later ones.
        on_end: called once, when no process is left and none will come: with what was wrong; never after `shutdown`.
    """

    def __init__(
        self,
        spawn: Spawn,
        *,
        restart: bool,
        on_ready: Callable[[], None],
        on_end: Callable[[SglangLiteError], None],
    ) -> None:
        self.phase: Literal["loading", "ready", "ended"] = "loading"
        self.num_restarts = 0
        self._spawn = spawn
        self._restart = restart
        self._on_ready = on_ready
        self._on_end = on_end
        self._lock = threading.Lock()
        self._is_stopping = False
        self._num_quick_deaths = 0
        self._ready_s = 0.0
        self._process = spawn(self._ready, self._exited)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; only after the first start."""
        return self._client().tokenizer

    @property
    def info(self) -> dict[str, Any]:
        """What the process that runs said of itself when it was ready."""
        return self._process.info

    @property
    def pulse(self) -> Pulse:
        """Whether the scheduler moves; while it loads there is nothing to move."""
        return self._process.pulse if self.phase == "ready" else Pulse(0, has_work=False, stands_s=0.0)

    def async_generate(self, *, sampling_params: Any = None, stream: bool = False, **inputs: Any) -> Awaitable[Any]:
        """As `Engine.async_generate`."""
        return self._client().async_generate(sampling_params=sampling_params, stream=stream, **inputs)

    def abort(self, rid: str) -> None:
        """As `Engine.abort`."""
        self._client().abort(rid)

    def flush_cache(self) -> bool:
        """As `Engine.flush_cache`."""
        return self._client().flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """As `Engine.get_server_info`."""
        return self._client().get_server_info() | {"restarts": self.num_restarts}

    def check_running(self) -> None:
        """Raise `EngineStoppedError` where no scheduler is ready."""
        self._client().check_running()

    def snapshot(self) -> dict[str, Any]:
        """Counters of a moment ago; waits for nothing. Empty while there is no scheduler."""
        client = self._process.client
        return ({} if client is None else client.snapshot()) | {"restarts": self.num_restarts}

    def call(self, name: str, **arguments: Any) -> Any:
        """A function of the engine by name."""
        return self._client().call(name, **arguments)

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> Program:
        """As `Engine.open_program`."""
        return self._client().open_program(sink, seed=seed, cache_salt=cache_salt)

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> Sequence[Program]:
        """As `Engine.open_rows`."""
        return self._client().open_rows(tree, rows, cache_salt=cache_salt)

    def check(self, tree: RequestTree) -> list[Finding]:
        """As `Engine.check`."""
        return self._client().check(tree)

    def shutdown(self) -> None:
        """End the process; idempotent."""
        with self._lock:
            self._is_stopping = True
            process = self._process
        process.stop()
        self.phase = "ended"

    def _client(self) -> EngineClient:
        client = self._process.client
        if client is None or self.phase != "ready":
            raise EngineStoppedError(f"the scheduler process is not ready: {self.phase}; send the request again later")
        return client

    def _ready(self) -> None:
        self._ready_s = time.monotonic()
        self.phase = "ready"
        self._on_ready()

    def _exited(self, code: int) -> None:
        """On the watching thread of the process that ended."""
        was_ready = self.phase == "ready"
        with self._lock:
            if self._is_stopping:
                return
            is_quick = not was_ready or time.monotonic() - self._ready_s < QUICK_S
            self._num_quick_deaths = self._num_quick_deaths + 1 if is_quick else 0
            goes_on = self._restart and self._num_quick_deaths < MAX_QUICK_DEATHS and self._process.error is None
            self.phase = "loading" if goes_on else "ended"
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if goes_on:
                self.num_restarts += 1
                logger.error("the scheduler process ended (%s); another is started", how)
                self._process = self._spawn(self._ready, self._exited)
                return
        error = self._process.error or EngineStoppedError(f"the scheduler process ended ({how})")
        self._on_end(error)
