"""A `CausalModel` in whole numbers: its scores depend on the tokens and positions that it finds in the pages, to the bit.

A token's key is its position, its value the token itself; what comes next depends on all of them in order. So a wrong page, a
token that was written over, or a row that ran with another token, give other text; and no batch changes any. The last token has
a favourite that mostly follows it, so texts repeat themselves and guesses from earlier text stand now and then.
"""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.fake_runner import START, mix


class NoAttention:
    """The model reads the pages itself."""

    def plan(self, fb: ForwardBatch) -> None:
        raise AssertionError("the exact model plans no attention")

    def forward(self, *args: object, **kwargs: object) -> torch.Tensor:
        raise AssertionError("the exact model has no attention")


class ExactModel:
    """Scores over `vocab_size` tokens from a pool of one layer, one head and one number."""

    def __init__(self, pool: KvPool, vocab_size: int) -> None:
        self._pool = pool
        self._vocab_size = vocab_size
        generator = torch.Generator().manual_seed(5)
        self._scores = torch.randn((509, vocab_size), generator=generator) * 2

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        keys, values = self._pool.k[0].view(-1), self._pool.v[0].view(-1)
        keys[fb.out_slots] = fb.positions.to(keys.dtype)
        values[fb.out_slots] = fb.input_ids.to(values.dtype)
        hidden: list[tuple[int, int]] = []
        starts = fb.q_starts.tolist()
        for row in range(fb.num_rows):
            seq_len = int(fb.seq_lens[row])
            at = torch.arange(seq_len)
            slots = fb.page_table[row].long()[at // fb.page_size] * fb.page_size + at % fb.page_size
            assert keys[slots].tolist() == list(range(seq_len)), f"row {row} finds positions {keys[slots].tolist()}"
            found = values[slots].long().tolist()
            assert min(found) >= 0, f"row {row} finds tokens {found}"
            h = START
            for i, token in enumerate(found):
                h = np.uint64(mix(h, token, i))
                if i >= seq_len - (starts[row + 1] - starts[row]):
                    hidden.append((int(h) % len(self._scores), token))
        return torch.tensor(hidden)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        scores = self._scores[hidden[:, 0]].clone()
        favourites = (hidden[:, 1] * 5 + 3) % self._vocab_size
        scores[torch.arange(len(hidden)), favourites] += 5.0 * (hidden[:, 0] % 8 != 0)
        return scores

    def poison(self, pages: list[int]) -> None:
        """What these pages hold must never be read again."""
        self._pool.k[:, pages] = -7
        self._pool.v[:, pages] = -7


def exact_pool(num_pages: int, page_size: int) -> KvPool:
    return KvPool(1, num_pages, 1, 1, page_size)
