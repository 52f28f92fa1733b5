"""Guesses of a request's next tokens that a draft model made with its last row; knows no model and no batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.scheduler.guess_limit import GuessLimit


class DraftGuesser:
    """One request's guesses: what its last row brought, good for the row right after it only.

    Attributes:
        limit: how many are tried.

    """

    def __init__(self, limit: int) -> None:
        """Try at most `limit` tokens at a time, at least 1."""
        self.limit = GuessLimit(limit)
        self._offered: tuple[int, tuple[int, ...]] = (0, ())

    @property
    def num_wanted(self) -> int:
        """How many guesses the next row can use."""
        return self.limit.now

    def offer(self, position: int, tokens: Sequence[int]) -> None:
        """`tokens` are guessed to follow the first `position` tokens of prompt and output."""
        self._offered = (position, tuple(tokens))

    def next_run(self, ids: NDArray[np.int32]) -> list[int]:
        """The tokens to try after `ids`, the request's prompt and output; asked once for each row."""
        most = self.limit.next()
        position, tokens = self._offered
        return list(tokens[:most]) if position == len(ids) else []

    def note(self, num_guessed: int, num_kept: int) -> None:
        """A row with `num_guessed` guesses came back; the first `num_kept` stand."""
        self.limit.note(num_guessed, num_kept)
