"""A stand-in for the KV of a model: each page slot holds a hash of all tokens up to it, so stale KV is seen at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.hold import KvHold, PageCopy

POISON = -1


def mix(before: int, token: int) -> int:
    return (before * 1_000_003 + token + 1) % (2**61 - 1)


def chain(ids: Sequence[int]) -> list[int]:
    """What the slots of a row over `ids` must hold."""
    values, last = [], 0
    for token in ids:
        last = mix(last, token)
        values.append(last)
    return values


class Canary:
    """KV contents of all pages: `slots` int64 [num_pages, page_size]."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.slots: NDArray[np.int64] = np.full((num_pages, page_size), POISON, dtype=np.int64)

    def copy(self, copies: Iterable[PageCopy]) -> None:
        """All copies read before any writes; they write in order."""
        read = [(copy, self.slots[copy.src, : copy.num_tokens].copy()) for copy in copies]
        for copy, values in read:
            self.slots[copy.dst, : copy.num_tokens] = values

    def row(self, hold: KvHold, num_tokens: int) -> list[int]:
        """The first `num_tokens` slots as the row sees them."""
        return self.slots[hold.pages].reshape(-1)[:num_tokens].tolist()

    def compute(self, hold: KvHold, ids: Sequence[int], start: int, stop: int) -> None:
        """What a forward does: each slot from the one before it, read through the row."""
        for position in range(start, stop):
            before = self._at(hold, position - 1) if position else 0
            self.slots[hold.pages[position // self.page_size], position % self.page_size] = mix(before, ids[position])

    def poison(self, pages: Iterable[int]) -> None:
        self.slots[list(pages)] = POISON

    def _at(self, hold: KvHold, position: int) -> int:
        return int(self.slots[hold.pages[position // self.page_size], position % self.page_size])
