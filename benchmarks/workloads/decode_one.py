"""W1: one request decodes, and nothing runs beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import token_ids
from benchmarks.workload import HF, Q4_0, Q4_1, BatchPeer, CompletionServer, Measured, Request, Workload


@dataclass(frozen=True)
class DecodeOne(Workload):
    """Tokens after the first, over the time since the first: by the stream here, by the peers' own clocks there.

    `hf_out`: tokens that transformers makes, which is slow.
    """

    code: ClassVar[str] = "W1"
    title: ClassVar[str] = "decode, batch 1"
    unit: ClassVar[str] = "tok/s"
    slots: ClassVar[tuple[int, ...]] = (1,)
    limit_s: ClassVar[float] = 60.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (1.0, 2.0), Q4_0: (0.8, 1.5), HF: (5.0, 15.0)}

    prompt: int = 64
    out: int = 128
    hf_out: int = 48

    def small(self) -> Self:
        """A quarter of the tokens."""
        return replace(self, out=32, hf_out=8)

    def tiny(self) -> Self:
        """Four tokens."""
        return replace(self, prompt=8, out=4, hf_out=2)

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """One stream."""
        engine.flush_cache()
        params = {"max_new_tokens": self.out, "temperature": 0, "ignore_eos": True}
        ids = token_ids((self.code, seed), self.prompt, engine.limits.vocab_size)
        first_s, last_s, first, last = 0.0, 0.0, 0, 0
        for reply in engine.generate(input_ids=ids, sampling_params=params, stream=True):
            last_s, last = time.perf_counter(), reply["meta_info"]["completion_tokens"]
            if not first:
                first_s, first = last_s, last
        return Measured(last - first, last_s - first_s)

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """One request."""
        done = server.complete(Request(token_ids((self.code, seed), self.prompt), self.out))
        return Measured(done.tokens - 1, done.decode_s)

    def on_batches(self, peer: BatchPeer, seed: int) -> Measured:
        """A batch of one."""
        times = peer.generate([token_ids((self.code, seed), self.prompt)], self.hf_out)
        return Measured(self.hf_out - 1, times.decode_s, {"out": self.hf_out})
