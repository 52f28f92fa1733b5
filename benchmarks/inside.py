"""An engine's model without scheduler, sampler and text: single steps, and the logits of a whole text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

import sglang_lite as sgl
from sglang_lite.runtime.attention.forward_batch import ForwardBatch

_CHUNK = 256
"""Tokens of a text computed at a time: so many rows of logits exist at once."""


class ModelInside:
    """The model that an engine made for a file, on its own KV pool, which nobody else uses meanwhile.

    `executor`: `native` or `torch`, what the engine chose.
    """

    def __init__(
        self, model: Path | None, threads: int, *, dtype: str = "auto", kv: str = "auto", tokens: int = 8192
    ) -> None:
        """Start an engine. `kv`: type of keys and values; `tokens`: room in the pool."""
        self._look_into(sgl.Engine(model, dtype=dtype, kv_cache_dtype=kv, num_threads=threads, max_total_tokens=tokens))

    @classmethod
    def of(cls, engine: sgl.Engine) -> Self:
        """The model of an engine that is idle and has nothing cached."""
        made = cls.__new__(cls)
        made._look_into(engine)
        return made

    def _look_into(self, engine: sgl.Engine) -> None:
        self.engine = engine
        runner: Any = self.engine._parts.runner  # pyright: ignore[reportPrivateUsage] - what no user needs
        self.model: Any = runner._model
        self.attention: Any = runner._attention
        self.pool: Any = runner._kv_pool
        self.executor: str = self.engine.get_server_info()["executor"]
        self._rng = np.random.default_rng(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.shutdown()

    @property
    def vocab_size(self) -> int:
        """Of the model."""
        return self.engine.limits.vocab_size

    def step(self, rows: int, prefix: int, extend: int) -> float:
        """Seconds of one step of `rows` rows with `extend` new random tokens after `prefix` each; head of the last one."""
        ids = self._rng.integers(0, self.vocab_size, rows * extend)
        width = -(-(prefix + extend) // self.pool.page_size)
        table = 1 + np.arange(rows * width).reshape(rows, width)
        fb = ForwardBatch.build(ids, np.full(rows, extend), np.full(rows, prefix), table, self.pool.page_size)
        start = time.perf_counter()
        with torch.inference_mode():
            hidden = self.model.forward(fb, self.attention)
            self.model.logits(hidden[fb.q_starts[1:].long() - 1])
        return time.perf_counter() - start

    def logits(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Logits after each token of a text, float32 `[n, vocab]` piece by piece."""
        size = self.pool.page_size
        table = 1 + np.arange(-(-len(ids) // size))[None]
        for start in range(0, len(ids), _CHUNK):
            part = np.asarray(ids[start : start + _CHUNK], dtype=np.int64)
            fb = ForwardBatch.build(part, np.array([len(part)]), np.array([start]), table, size)
            with torch.inference_mode():
                yield self.model.logits(self.model.forward(fb, self.attention)).float().numpy()
