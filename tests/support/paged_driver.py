"""Drives a model over a paged pool with the plainest page bookkeeping: one owner, no sharing, no scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.model.registry import CausalLM


@dataclass
class Sequence:
    """One sequence: its pages and how many tokens' KV they hold."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class PagedDriver:
    """Feeds tokens of several sequences to a model; pages are handed out in a shuffled order."""

    def __init__(self, module: CausalLM, pool: KvPool, attention: AttentionBackend, seed: int = 0) -> None:
        self.module = module
        self.pool = pool
        self.attention = attention
        self._free = (1 + np.random.default_rng(seed).permutation(pool.num_pages - 1)).tolist()

    def step(self, rows: list[tuple[Sequence, list[int]]]) -> torch.Tensor:
        """Append each row's tokens in one forward; returns the logits of all of them, [T, vocab]."""
        fb = self._batch(rows)
        return self.module.logits(self.module.forward(fb, self.attention))

    def next_tokens(self, rows: list[tuple[Sequence, list[int]]]) -> torch.Tensor:
        """Append each row's tokens in one forward; returns the logits after each row, [R, vocab]."""
        fb = self._batch(rows)
        hidden = self.module.forward(fb, self.attention)
        return self.module.logits(hidden[fb.q_starts[1:].long() - 1])

    def _batch(self, rows: list[tuple[Sequence, list[int]]]) -> ForwardBatch:
        prefix = [sequence.length for sequence, _ in rows]
        for sequence, tokens in rows:
            sequence.length += len(tokens)
            while len(sequence.pages) * self.pool.page_size < sequence.length:
                sequence.pages.append(self._free.pop())
        table = np.zeros((len(rows), max(len(sequence.pages) for sequence, _ in rows)), dtype=np.int32)
        for i, (sequence, _) in enumerate(rows):
            table[i, : len(sequence.pages)] = sequence.pages
        return ForwardBatch.build(
            input_ids=np.array([token for _, tokens in rows for token in tokens]),
            extend_lens=np.array([len(tokens) for _, tokens in rows]),
            prefix_lens=np.array(prefix),
            page_table=table,
            page_size=self.pool.page_size,
        )
