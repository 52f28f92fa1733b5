"""W2: sixteen requests decode side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import token_ids
from benchmarks.workload import HF, Q4_0, Q4_1, BatchPeer, CompletionServer, Measured, Request, Workload


@dataclass(frozen=True)
class DecodeBatch(Workload):
    """All tokens made, over the time from the first request to the last reply, the short prompts included.

    `hf_out`: tokens a row that transformers makes.
    """

    code: ClassVar[str] = "W2"
    title: ClassVar[str] = "decode, batch 16"
    unit: ClassVar[str] = "tok/s"
    slots: ClassVar[tuple[int, ...]] = (16, 8)
    limit_s: ClassVar[float] = 80.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (1.5, 2.5), Q4_0: (1.2, 2.0), HF: (4.0, 7.0)}

    rows: int = 16
    prompt: int = 16
    out: int = 64
    hf_out: int = 24

    def small(self) -> Self:
        """A quarter of the tokens."""
        return replace(self, out=16, hf_out=4)

    def tiny(self) -> Self:
        """Two rows."""
        return replace(self, rows=2, prompt=4, out=3, hf_out=2)

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """One call."""
        engine.flush_cache()
        prompts = self._prompts(seed, engine.limits.vocab_size)
        params = {"max_new_tokens": self.out, "temperature": 0, "ignore_eos": True}
        start = time.perf_counter()
        engine.generate(input_ids=prompts, sampling_params=params)
        return Measured(self.rows * self.out, time.perf_counter() - start)

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """Sixteen requests at once."""
        requests = [Request(prompt, self.out) for prompt in self._prompts(seed)]
        start = time.perf_counter()
        done = server.complete_all(requests)
        return Measured(sum(one.tokens for one in done), time.perf_counter() - start)

    def on_batches(self, peer: BatchPeer, seed: int) -> Measured:
        """One batch."""
        times = peer.generate(self._prompts(seed), self.hf_out)
        return Measured(self.rows * self.hf_out, times.prefill_s + times.decode_s, {"out": self.hf_out})

    def _prompts(self, seed: int, vocab_size: int = 40000) -> list[list[int]]:
        return [token_ids((self.code, seed, row), self.prompt, vocab_size) for row in range(self.rows)]
