"""A prefix that a client asked to keep in the cache; it knows how to let go of it and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

PINNED_NEXT_USE = -1
"""Sooner than any program's next use, so that of all leased prefixes pinned ones are evicted last."""


class CachedPrefix:
    """The handle that `Engine.cache_prefix` gives. A pin is a priority, not a lock: running requests come before it.

    `num_tokens`: of the prefix. `computed_tokens`: those that were not cached before. Use it as a context manager, or
    call `unpin`.
    """

    def __init__(self, num_tokens: int, computed_tokens: int, unpin: Callable[[], None]) -> None:
        self.num_tokens = num_tokens
        self.computed_tokens = computed_tokens
        self._unpin: Callable[[], None] | None = unpin

    @property
    def is_pinned(self) -> bool:
        """`unpin` was not called."""
        return self._unpin is not None

    def unpin(self) -> None:
        """From now on the prefix is evicted like any other. Idempotent."""
        unpin, self._unpin = self._unpin, None
        if unpin is not None:
            unpin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unpin()
