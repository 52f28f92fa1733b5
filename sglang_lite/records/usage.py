"""What gens and selects cost in tokens: one of them, or many together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sglang_lite.request_tree import GenOp, SelectOp


@dataclass(slots=True)
class UsageTotals:
    """Sums in tokens.

    `requests`: of gens and selects that are done, one for each sample; `recomputed_tokens`: prompt tokens computed again
    later; `evicted_pages`: cached pages that were given up to make room.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    recomputed_tokens: int = 0
    evicted_pages: int = 0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed, those that were computed again included."""
        return self.prompt_tokens - self.cached_tokens + self.recomputed_tokens

    @property
    def sampled_tokens(self) -> int:
        """Output tokens that the model chose: all but the forced ones."""
        return self.completion_tokens - self.forced_tokens

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that was reused; 0.0 without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, meta: Mapping[str, Any]) -> None:
        """Count one op by its `meta_info`, all its samples; counts that are absent are 0."""
        for one in meta.get("samples") or (meta,):
            self._add_request(one)

    def _add_request(self, meta: Mapping[str, Any]) -> None:
        prompt, cached = meta.get("prompt_tokens") or 0, meta.get("cached_tokens") or 0
        self.requests += 1
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.recomputed_tokens += meta.get("computed_tokens", prompt - cached) - (prompt - cached)
        self.completion_tokens += meta.get("completion_tokens") or 0
        self.forced_tokens += meta.get("forced_tokens") or 0
        self.evicted_pages += meta.get("evicted_pages") or 0

    def to_json(self) -> dict[str, Any]:
        """All counts as plain data."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "computed_tokens": self.computed_tokens,
            "sampled_tokens": self.sampled_tokens,
            "forced_tokens": self.forced_tokens,
            "evicted_pages": self.evicted_pages,
        }


@dataclass(slots=True)
class OpUsage(UsageTotals):
    """What one gen or select cost.

    `op`, `branch`: its ids. `kind`: `gen` or `select`. `seconds`: from its sending to its end; `queue_s`: how long its
    requests waited, together; None where the backend does not say. `seed`: what its sampling was seeded with.
    """

    op: int = 0
    branch: int = 0
    kind: str = "gen"
    name: str | None = None
    seconds: float = 0.0
    queue_s: float | None = None
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """All counts as plain data, without what identifies the op."""
        return {
            **UsageTotals.to_json(self),
            "seconds": self.seconds,
            "queue_s": self.queue_s,
            "seed": self.seed,
        }


@dataclass(slots=True)
class RunUsage(UsageTotals):
    """What a run cost until now: the sums, and `ops`, the gens and selects that are done. `seconds`: of the whole run."""

    seconds: float = 0.0
    ops: list[OpUsage] = field(default_factory=list[OpUsage])

    def add_op(self, usage: OpUsage) -> None:
        """Count one more."""
        self.ops.append(usage)
        for name in asdict(UsageTotals()):
            setattr(self, name, getattr(self, name) + getattr(usage, name))

    def to_json(self) -> dict[str, Any]:
        """The sums as plain data."""
        return {**UsageTotals.to_json(self), "seconds": self.seconds}


def usage_of(op: GenOp | SelectOp, metas: Sequence[Mapping[str, Any]], seconds: float) -> OpUsage:
    """The cost of an op, from the `meta_info` of its attempts, the accepted one last."""
    kind = "gen" if isinstance(op, GenOp) else "select"
    usage = OpUsage(op=op.id, branch=op.branch, kind=kind, name=op.name, seconds=seconds, seed=metas[-1].get("seed"))
    for meta in metas:
        usage.add(meta)
        waits = [one["queue_time"] for one in meta.get("samples") or (meta,) if one.get("queue_time") is not None]
        if waits:
            usage.queue_s = (usage.queue_s or 0.0) + sum(waits)
    return usage
