"""How long a server that has gone, or is not ready, is tried again, and how often."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sglang_lite.errors import ExecutionError
from sglang_lite.lang.backends.http_client import Answer, RefusedError, UnreachableError


@dataclass(frozen=True, slots=True)
class Patience:
    """`total_s`: of a server that does not answer; one that answers 503 (it loads, or is full) gets `busy_times` as much.

    Pauses begin with `first_s` and double up to `most_s`. `max_vain`: so often a program is given to servers that lose it
    before anything new came of it (it may be what ends them).
    """

    total_s: float = 60.0
    first_s: float = 0.1
    most_s: float = 4.0
    busy_times: int = 5
    max_vain: int = 10


class Retries:
    """The tries of one program; used on the event loop only."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since_s: float | None = None
        self._num = 0
        self._num_vain = 0
        self.pause_s = 0.0
        """Before the next try."""

    def opened(self) -> None:
        """A server has taken the program."""
        self._num_vain += 1

    def heard(self, *, is_new: bool) -> None:
        """Something came from the server; `is_new`: that no server had told before."""
        self._since_s, self._num, self.pause_s = None, 0, 0.0
        if is_new:
            self._num_vain = 0

    def broke(self, error: UnreachableError | RefusedError) -> None:
        """A try came to nothing; the next one has its `pause_s`.

        Raises:
            ExecutionError: it was tried for long enough.
        """
        if self._num_vain >= self._patience.max_vain:
            raise ExecutionError(
                f"{error} ({self._num_vain} times the program was given to a server that lost it; it may be what ends it)"
            ) from error
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = now_s
        patience, gone_s = self._patience, now_s - self._since_s
        self.pause_s = min(patience.first_s * 2 ** min(self._num, 16), patience.most_s)
        self._num += 1
        limit_s = patience.total_s
        if isinstance(error, RefusedError):
            if b"too_many_programs" in error.answer.body:
                return  # the server works, and others' programs end
            if error.answer.status == 404 and self._num == 1:
                self.pause_s = 0.0  # it forgot the program, and waiting changes nothing
            if error.answer.status == 503:
                self.pause_s = max(self.pause_s, min(_retry_after_s(error.answer), patience.most_s))
                limit_s *= patience.busy_times
        if gone_s + self.pause_s > limit_s:
            raise ExecutionError(
                f"{error} (tried {self._num} times in {gone_s:.0f} s; what still ran was given up)"
            ) from error


def _retry_after_s(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() else 0.0
