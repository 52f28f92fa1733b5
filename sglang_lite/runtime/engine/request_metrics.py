"""How long requests take and how many there were, as histograms and counters; it is told the time and knows no scheduler."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sglang_lite.runtime.scheduler.messages import ReqOutput

TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
INTER_TOKEN_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8)
E2E_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200)
QUEUE_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)


class Histogram:
    """Counts of values by upper bounds, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def to_dict(self) -> dict[str, Any]:
        """`bounds`, `counts` (one more: those above the last bound) and `sum` as plain values."""
        return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}


@dataclass
class _Live:
    """A request under way, in seconds of one clock."""

    came_s: float
    last_token_s: float | None = None


class RequestMetrics:
    """Sums over all requests since the start; used on one thread. Requests that were refused count by their end only."""

    def __init__(self) -> None:
        self._live: dict[str, _Live] = {}
        self._histograms = {
            "time_to_first_token_seconds": Histogram(TTFT_S),
            "inter_token_latency_seconds": Histogram(INTER_TOKEN_S),
            "e2e_request_latency_seconds": Histogram(E2E_S),
            "queue_time_seconds": Histogram(QUEUE_S),
        }
        self._finished: dict[str, int] = {}
        self._tokens = dict.fromkeys(("prompt_tokens", "cached_tokens", "generation_tokens"), 0)

    def came(self, rid: str, now_s: float) -> None:
        """A request is queued."""
        self._live[rid] = _Live(now_s)

    def took(self, out: ReqOutput, now_s: float) -> None:
        """One output of a request, with the tokens of one step."""
        live = self._live.get(out.rid)
        if live is not None and out.new_ids:
            count = len(out.new_ids)
            if live.last_token_s is None:
                self._histograms["time_to_first_token_seconds"].add(now_s - live.came_s)
                if count > 1:
                    self._histograms["inter_token_latency_seconds"].add(0.0, count - 1)
            else:
                self._histograms["inter_token_latency_seconds"].add((now_s - live.last_token_s) / count, count)
            live.last_token_s = now_s
        if out.finished is not None:
            self._end(out, live, now_s)

    def _end(self, out: ReqOutput, live: _Live | None, now_s: float) -> None:
        assert out.finished is not None, f"{out.rid}: the last output has a reason"
        self._live.pop(out.rid, None)
        kind = str(out.finished.to_json().get("type"))
        self._finished[kind] = self._finished.get(kind, 0) + 1
        if live is not None:
            self._histograms["e2e_request_latency_seconds"].add(now_s - live.came_s)
        if out.queue_s is not None:
            self._histograms["queue_time_seconds"].add(out.queue_s)
        if out.usage is not None:
            self._tokens["prompt_tokens"] += out.usage.prompt_tokens
            self._tokens["cached_tokens"] += out.usage.cached_tokens
            self._tokens["generation_tokens"] += out.usage.completion_tokens

    def to_dict(self) -> dict[str, Any]:
        """`histograms` by name, `finished` by reason, `tokens` of finished requests."""
        return {
            "histograms": {name: histogram.to_dict() for name, histogram in self._histograms.items()},
            "finished": dict(self._finished),
            "tokens": dict(self._tokens),
        }
