"""Workloads that are programs: the engine runs the request tree, a server gets one request a gen with the whole text."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.peers.program_client import ProgramClient
from benchmarks.workload import CompletionServer, Measured, Workload


@dataclass(frozen=True)
class ProgramWorkload(Workload):
    """The same function and rows for whoever takes part."""

    is_language: ClassVar[bool] = True

    @property
    @abstractmethod
    def function(self) -> Any:
        """What `sglang_lite.function` made."""

    @abstractmethod
    def rows(self, seed: int) -> Sequence[dict[str, Any]]:
        """Arguments of each run."""

    @property
    @abstractmethod
    def amount(self) -> float:
        """Units of work that all rows come to."""

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """The rows as one batch of programs."""
        engine.flush_cache()
        before = _prompt_tokens(engine)
        seconds = self._run(engine, seed)
        return Measured(self.amount, seconds, {"prompt tokens computed": _prompt_tokens(engine) - before})

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """The rows over a client of the server."""
        client = ProgramClient(server)
        try:
            seconds = self._run(client, seed)
        finally:
            client.shutdown()
        details = {"requests": client.requests, "prompt tokens computed": client.prompt_tokens_computed}
        return Measured(self.amount, seconds, details)

    def _run(self, backend: Any, seed: int) -> float:
        rows = self.rows(seed)
        start = time.perf_counter()
        for state in self.function.run_batch(rows, backend=backend):
            state.sync()
            if (error := state.error()) is not None:
                raise error
        return time.perf_counter() - start


def _prompt_tokens(engine: Any) -> int:
    """Tokens computed since the start less those that were drawn."""
    runner = engine.get_server_info()["runner"]
    return int(runner["tokens"] - runner["sampled"])
