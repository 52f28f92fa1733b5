"""Guesses of a request's next tokens from what it has said before (prompt lookup); knows no batch.

The last few tokens are looked up in the request's own prompt and output; what followed them the last time is the guess.
Guesses only decide what is computed together: a row keeps as many as the request would choose itself.
Source: A. Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.scheduler.guess_limit import GuessLimit

LONGEST, SHORTEST = 4, 2
"""Tokens that are looked up: as many as are found, the longest first."""


class NgramGuesser:
    """One request's guesses.

    Attributes:
        limit: how many are tried.

    """

    def __init__(self, limit: int) -> None:
        """Guess at most `limit` tokens at a time, at least 1."""
        self.limit = GuessLimit(limit)
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def next_run(self, ids: NDArray[np.int32]) -> list[int]:
        """The tokens to try after `ids`, the request's prompt and output; asked once for each row."""
        known = ids.tolist()
        self._index(known)
        most = self.limit.next()
        if not most:
            return []
        for size in range(min(LONGEST, len(known)), SHORTEST - 1, -1):
            end = self._ends.get(tuple(known[-size:]))
            if end is not None:
                return known[end : end + most]
        return []

    def note(self, num_guessed: int, num_kept: int) -> None:
        """A row with `num_guessed` guesses came back; the first `num_kept` stand."""
        self.limit.note(num_guessed, num_kept)

    def _index(self, known: list[int]) -> None:
        """Note where each run of tokens that something follows has its last end."""
        for end in range(max(self._num_indexed, SHORTEST), len(known)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(known[end - size : end])] = end
        self._num_indexed = max(len(known), SHORTEST)
