"""Guesses of a request's next tokens from what it has said before (prompt lookup); knows no batch.

The last few tokens are looked up in the request's own prompt and output; what followed them the last time is the guess.
Guesses only decide what is computed together: a row keeps as many as the request would choose itself.
Source: A. Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST, SHORTEST = 4, 2
"""Tokens that are looked up: as many as are found, the longest first."""

MAX_WAIT = 64
"""The longest pause, in tokens, after guesses of which none stood."""


class NgramGuesser:
    """One request's guesses: more after such as stood, fewer or none for a while after such as did not.

    Attributes:
        num_kept: guesses that stood.
        num_rejected: guesses that were computed and did not stand.

    """

    def __init__(self, limit: int) -> None:
        """Guess at most `limit` tokens at a time, at least 1."""
        assert limit >= 1, f"the number of guesses must be at least 1, got {limit}"
        self.num_kept = 0
        self.num_rejected = 0
        self._most = limit
        self._limit = min(4, limit)
        self._failures = 0
        self._wait = 0
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def next_run(self, ids: NDArray[np.int32]) -> list[int]:
        """The tokens to try after `ids`, the request's prompt and output; asked once for each row."""
        known = ids.tolist()
        self._index(known)
        if self._wait:
            self._wait -= 1
            return []
        for size in range(min(LONGEST, len(known)), SHORTEST - 1, -1):
            end = self._ends.get(tuple(known[-size:]))
            if end is not None:
                return known[end : end + self._limit]
        return []

    def note(self, num_guessed: int, num_kept: int) -> None:
        """A row with `num_guessed` guesses came back; the first `num_kept` stand."""
        self.num_kept += num_kept
        self.num_rejected += num_guessed - num_kept
        if num_kept == num_guessed:
            self._limit = min(max(self._limit, 2 * num_guessed), self._most)
        else:
            self._limit = max(num_kept, 1)
        if num_kept:
            self._failures = 0
        else:
            self._wait = min(1 << self._failures, MAX_WAIT)
            self._failures += 1

    def _index(self, known: list[int]) -> None:
        """Note where each run of tokens that something follows has its last end."""
        for end in range(max(self._num_indexed, SHORTEST), len(known)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(known[end - size : end])] = end
        self._num_indexed = max(len(known), SHORTEST)
