"""Prefixes that are being computed in this very step: who should wait for whom; it keeps nothing between steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class StepPrefixes:
    """The whole-page prefixes that rows of the step being planned will leave in the cache.

    A follower waits while somebody computes in this step what it would share; the question is asked anew in every step,
    so it goes on at once when its leader is aborted, retracted, or has no row in the step.

    Args:
        min_shared_tokens: waiting must save so many tokens, or half of what there is to compute if that is less.
    """

    def __init__(self, page_size: int, min_shared_tokens: int) -> None:
        self._page_size = page_size
        self._min_shared = min_shared_tokens
        self._keys: set[int] = set()
        self.num_lookups = 0
        """Keys looked at, the measure of what the scan cost."""

    def add_leader(self, page_keys: Sequence[int]) -> None:
        """`page_keys`: of a request that has a row in this step, one for each whole page of its known tokens."""
        self._keys.update(page_keys)

    def should_wait(self, page_keys: Sequence[int], cached_len: int, match_limit: int, seq_len: int) -> bool:
        """Whether a candidate with `cached_len` tokens in the cache saves enough by waiting for this step's rows."""
        if not self._keys:
            return False
        wanted = max(min(self._min_shared, (seq_len - cached_len + 1) // 2), 1)
        if min(len(page_keys) * self._page_size, match_limit) - cached_len < wanted:
            return False
        shared = bisect_left(page_keys, True, key=self._is_missing)
        return min(shared * self._page_size, match_limit) - cached_len >= wanted

    def _is_missing(self, page_key: int) -> bool:
        # A key stands for all pages up to its own, so the keys that are there come first.
        self.num_lookups += 1
        return page_key not in self._keys
