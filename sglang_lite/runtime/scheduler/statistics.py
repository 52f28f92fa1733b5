"""What the scheduler reports of itself; plain numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sglang_lite.runtime.memory.kv import KvStatistics
from sglang_lite.runtime.scheduler.queue import QueueStatistics


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """Requests by place now, tokens since the start, and the memory's own counts."""

    step: int
    waiting: int
    waiting_for_grammar: int
    prefilling: int
    running: int
    scoring: int
    cached_tokens: int
    """Prompt tokens found in the cache, at every admission."""
    computed_tokens: int
    """Prompt and choice tokens whose KV was computed, recomputation after a retract included."""
    forced_tokens: int
    """Output tokens that a constraint forced and that were computed together."""
    rejected_tokens: int
    """Tokens that were computed because a constraint forced them, and not kept since the request chose others."""
    speculated_tokens: int
    """Output tokens that were guessed from the request's earlier text or by a draft model, and computed together."""
    missed_tokens: int
    """Tokens that were computed as such guesses, and not kept since the request chose others."""
    speculated_rows: int
    """Rows that carried such guesses."""
    output_tokens: int
    retractions: int
    refused: int
    """Requests that the queue's limit turned away."""
    dropped_rows: int
    """Rows that ran for requests that had ended."""
    new_token_ratio: float
    queue: QueueStatistics
    kv: KvStatistics

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that came from the cache; 0.0 before the first."""
        total = self.cached_tokens + self.computed_tokens
        return self.cached_tokens / total if total else 0.0

    @property
    def spec_accept_rate(self) -> float:
        """Share of the guesses computed that were kept; 0.0 before the first."""
        total = self.speculated_tokens + self.missed_tokens
        return self.speculated_tokens / total if total else 0.0

    @property
    def spec_accept_length(self) -> float:
        """Tokens that a row with guesses gave, the one drawn behind them included, on average; 0.0 before the first."""
        return self.speculated_tokens / self.speculated_rows + 1 if self.speculated_rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, what is derived included."""
        derived = ("hit_rate", "spec_accept_rate", "spec_accept_length")
        return asdict(self) | {name: getattr(self, name) for name in derived}
