"""W3: one prompt that nobody has seen is computed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import token_ids
from benchmarks.workload import HF, Q4_0, Q4_1, BatchPeer, CompletionServer, Measured, Request, Workload


@dataclass(frozen=True)
class Prefill(Workload):
    """Prompt tokens over the time from the request to the reply, which is one token long."""

    code: ClassVar[str] = "W3"
    title: ClassVar[str] = "prefill, 512 and 1024 tokens"
    unit: ClassVar[str] = "tok/s"
    slots: ClassVar[tuple[int, ...]] = (1,)
    limit_s: ClassVar[float] = 80.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (1.5, 4.0), Q4_0: (1.0, 2.0), HF: (1.2, 2.2)}

    lengths: tuple[int, ...] = (512, 1024)

    def small(self) -> Self:
        """One short prompt."""
        return replace(self, lengths=(256,))

    def tiny(self) -> Self:
        """Two prompts of a page or two."""
        return replace(self, lengths=(16, 32))

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """Prompt by prompt."""
        engine.flush_cache()
        params = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        seconds: dict[int, float] = {}
        for length in self.lengths:
            ids = token_ids((self.code, seed, length), length, engine.limits.vocab_size)
            start = time.perf_counter()
            engine.generate(input_ids=ids, sampling_params=params)
            seconds[length] = time.perf_counter() - start
        return self._measured(seconds)

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """Request by request."""
        seconds: dict[int, float] = {}
        for length in self.lengths:
            start = time.perf_counter()
            server.complete(Request(token_ids((self.code, seed, length), length), 1))
            seconds[length] = time.perf_counter() - start
        return self._measured(seconds)

    def on_batches(self, peer: BatchPeer, seed: int) -> Measured:
        """Batches of one."""
        seconds = {n: peer.generate([token_ids((self.code, seed, n), n)], 1).prefill_s for n in self.lengths}
        return self._measured(seconds)

    @staticmethod
    def _measured(seconds: dict[int, float]) -> Measured:
        rates = {f"tok/s at {length}": length / taken for length, taken in seconds.items()}
        return Measured(sum(seconds), sum(seconds.values()), rates)
