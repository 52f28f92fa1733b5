"""Token counts over the gens and selects of a stretch of time, for whoever wants to report them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class UsageTotals:
    """Sums in tokens; `requests`: gens and selects done; `recomputed_tokens`: prompt tokens computed again later."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    recomputed_tokens: int = 0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed, those that were computed again included."""
        return self.prompt_tokens - self.cached_tokens + self.recomputed_tokens

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that was reused; 0.0 without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, meta: Mapping[str, Any]) -> None:
        """Count one op by its `meta_info`; counts that are absent are 0."""
        prompt, cached = meta.get("prompt_tokens") or 0, meta.get("cached_tokens") or 0
        self.requests += 1
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.recomputed_tokens += meta.get("computed_tokens", prompt - cached) - (prompt - cached)
        self.completion_tokens += meta.get("completion_tokens") or 0
        self.forced_tokens += meta.get("forced_tokens") or 0


_lock = threading.Lock()
_open: list[UsageTotals] = []


@contextmanager
def count_usage() -> Generator[UsageTotals]:
    """Count every gen and select of the process that ends inside the `with` block."""
    totals = UsageTotals()
    with _lock:
        _open.append(totals)
    try:
        yield totals
    finally:
        with _lock:
            # By identity: two counters with equal sums are equal to `list.remove`.
            _open[:] = [other for other in _open if other is not totals]


def record(meta: Mapping[str, Any]) -> None:
    """One gen or select is done."""
    with _lock:
        for totals in _open:
            totals.add(meta)
