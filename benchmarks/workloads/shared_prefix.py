"""W4: requests that begin with the same long prompt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import token_ids
from benchmarks.workload import Q4_0, Q4_1, BatchPeer, CompletionServer, Measured, Request, Workload


@dataclass(frozen=True)
class SharedPrefix(Workload):
    """Requests over the time from the first one to the last reply; the prefix is known to nobody when it begins.

    `hf_requests`: how many of them transformers gets, as one batch; it keeps nothing between sequences.
    """

    code: ClassVar[str] = "W4"
    title: ClassVar[str] = "shared prefix"
    unit: ClassVar[str] = "requests/s"
    limit_s: ClassVar[float] = 140.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (2.0, 6.0), Q4_0: (2.0, 6.0)}

    requests: int = 32
    shared: int = 800
    own: int = 32
    out: int = 16
    hf_requests: int = 2

    def small(self) -> Self:
        """A quarter of the requests."""
        return replace(self, requests=8, hf_requests=1)

    def tiny(self) -> Self:
        """Three requests."""
        return replace(self, requests=3, shared=20, own=4, out=2, hf_requests=1)

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """One call."""
        engine.flush_cache()
        params = {"max_new_tokens": self.out, "temperature": 0, "ignore_eos": True}
        prompts = self.prompts(seed, engine.limits.vocab_size)
        start = time.perf_counter()
        replies = engine.generate(input_ids=prompts, sampling_params=params)
        seconds = time.perf_counter() - start
        computed = sum(reply["meta_info"]["computed_tokens"] for reply in replies)
        return Measured(len(prompts), seconds, {"prompt tokens computed": computed, "optimum": self.optimum})

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """All requests at once."""
        requests = [Request(prompt, self.out) for prompt in self.prompts(seed)]
        start = time.perf_counter()
        done = server.complete_all(requests)
        seconds = time.perf_counter() - start
        computed = sum(one.prompt_tokens_computed for one in done)
        return Measured(len(done), seconds, {"prompt tokens computed": computed, "optimum": self.optimum})

    def on_batches(self, peer: BatchPeer, seed: int) -> Measured:
        """One batch of some of the requests."""
        times = peer.generate(self.prompts(seed)[: self.hf_requests], self.out)
        return Measured(self.hf_requests, times.prefill_s + times.decode_s, {"requests": self.hf_requests})

    @property
    def optimum(self) -> int:
        """Prompt tokens that must be computed."""
        return self.shared + self.requests * self.own

    def prompts(self, seed: int, vocab_size: int = 40000) -> list[list[int]]:
        """Token ids: the part that all begin with, then each one's own, whose first token no other has."""
        head = token_ids((self.code, seed), self.shared, vocab_size)
        own = [token_ids((self.code, seed, number), self.own, vocab_size) for number in range(self.requests)]
        return [[*head, vocab_size // 3 + number, *ids[1:]] for number, ids in enumerate(own)]
