"""A progress bar in one line of text; it knows nothing of what is counted."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_SECONDS_BETWEEN = 0.1


class ProgressBar:
    """Draws `[###...] done/total` over itself on `file` (default: stderr); `close` ends the line."""

    def __init__(self, total: int, file: TextIO | None = None) -> None:
        self._total = total
        self._file = file or sys.stderr
        self._drawn_at: float | None = None
        self._started_at = time.monotonic()
        self._shown = -1

    def update(self, done: int) -> None:
        """Show `done` of the total; calls in quick succession are left out, the last one is not."""
        now = time.monotonic()
        is_due = self._drawn_at is None or now - self._drawn_at >= _SECONDS_BETWEEN
        if done != self._shown and (is_due or done == self._total):
            self._drawn_at, self._shown = now, done
            filled = _WIDTH * done // max(self._total, 1)
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._file.write(f"\r[{bar}] {done}/{self._total} {now - self._started_at:.1f} s")
            self._file.flush()

    def close(self) -> None:
        """End the line."""
        if self._drawn_at is not None:
            self._file.write("\n")
            self._file.flush()
