"""How many tokens are guessed at a time: more after guesses that stood, fewer or none for a while after such as did not."""

from __future__ import annotations

MAX_WAIT = 64
"""The longest pause, in tokens, after guesses of which none stood."""

_FIRST = 4


class GuessLimit:
    """One request's limit. Nothing depends on it but time.

    After guesses that stood as a whole, twice as many are tried, up to the most; after such as did not, as many as stood; after
    some of which nothing stood, 1, 2, 4, ... `MAX_WAIT` tokens are drawn alone first, until one stands again.

    Attributes:
        num_kept: guesses that stood.
        num_rejected: guesses that were computed and did not stand.

    """

    def __init__(self, most: int) -> None:
        """At most `most` tokens at a time, at least 1."""
        assert most >= 1, f"the number of guesses must be at least 1, got {most}"
        self.num_kept = 0
        self.num_rejected = 0
        self._most = most
        self._limit = min(_FIRST, most)
        self._failures = 0
        self._wait = 0

    @property
    def now(self) -> int:
        """Most tokens to guess for the row after the one that is planned now; 0 while it pauses."""
        return 0 if self._wait else self._limit

    def next(self) -> int:
        """Most tokens to guess in the row that is planned now; asked once for each row."""
        if self._wait:
            self._wait -= 1
            return 0
        return self._limit

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
