"""The records of the last programs, for the page; those of others are shown without texts where texts are not for the reader."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from sglang_lite.records.recorder import RunRecorder
from sglang_lite.request_tree import Event, ForkOp, GenOp, Op, SelectOp

KEPT = 40
"""Programs that are remembered."""
MAX_OPS = 2000
"""A program with more is not remembered: its record would not be readable, and memory stays bounded."""

_TEXT_FIELDS = ("text", "choices", "message", "name", "vote")
_COUNTS = (
    "prompt_tokens",
    "cached_tokens",
    "computed_tokens",
    "completion_tokens",
    "forced_tokens",
    "evicted_pages",
    "retractions",
    "queue_time",
    "e2e_latency",
    "time_to_first_token",
    "seed",
)


class RecentProgram:
    """One program: how large it is, and its recorder while it is small enough."""

    def __init__(self, name: str, model: str, seed: int | None) -> None:
        self.name = name
        self.recorder: RunRecorder | None = RunRecorder(name, "server", lambda: model, seed)
        self.started_at = self.recorder.started_at
        self.num_ops = 0
        self.num_calls = 0
        self.num_forks = 0

    def sent(self, ops: Sequence[Op]) -> None:
        """The client sent ops."""
        self.num_ops += len(ops)
        self.num_calls += sum(isinstance(op, GenOp | SelectOp) for op in ops)
        self.num_forks += sum(isinstance(op, ForkOp) for op in ops)
        if self.num_ops > MAX_OPS:
            self.recorder = None
        if self.recorder is not None:
            for op in ops:
                self.recorder.sent(op)

    def take(self, event: Event) -> None:
        """The engine reported something."""
        if self.recorder is not None:
            self.recorder.take(event)


class RecentPrograms:
    """The last `KEPT` programs; used on the event loop only."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._programs: OrderedDict[str, RecentProgram] = OrderedDict()

    def open(self, name: str, seed: int | None) -> RecentProgram:
        """A new program; the oldest is forgotten."""
        program = self._programs[name] = RecentProgram(name, self._model, seed)
        while len(self._programs) > KEPT:
            self._programs.popitem(last=False)
        return program

    def overview(self) -> list[dict[str, Any]]:
        """The newest first: sizes and costs, no texts."""
        return [_summary(program) for program in reversed(self._programs.values())]

    def record(self, name: str, *, with_texts: bool) -> dict[str, Any] | None:
        """A program's record in its JSON form; None: unknown, or too large to be kept."""
        program = self._programs.get(name)
        if program is None or program.recorder is None:
            return None
        data = program.recorder.record().to_json()
        return data if with_texts else without_texts(data)


def _summary(program: RecentProgram) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": program.name,
        "started_at": program.started_at,
        "ops": program.num_ops,
        "calls": program.num_calls,
        "forks": program.num_forks,
        "has_record": program.recorder is not None,
    }
    if program.recorder is None:
        return data
    record = program.recorder.record()
    states = [op.state for op in record.ops]
    state = "open" if "open" in states else "failed" if "failed" in states else "done"
    return data | {"state": state, "seconds": record.seconds, "usage": record.usage.to_json()}


def without_texts(record: dict[str, Any]) -> dict[str, Any]:
    """A record with everything that somebody wrote or a model said taken out: structure, times and counts stay."""
    return record | {
        "error": None if record["error"] is None else {"type": record["error"]["type"], "message": "(hidden)"},
        "ops": [_without_texts(entry) for entry in record["ops"]],
        "nested": [without_texts(inner) for inner in record["nested"]],
    }


def _without_texts(entry: dict[str, Any]) -> dict[str, Any]:
    op = {name: value for name, value in entry["op"].items() if name not in (*_TEXT_FIELDS, "params", "marks")}
    kept = {name: entry[name] for name in ("state", "sent_s", "ended_s", "order", "usage") if name in entry}
    if "error" in entry:
        kept["error"] = {"type": entry["error"]["type"], "message": "(hidden)"}
    if "result" in entry:
        meta = entry["result"].get("meta", {})
        kept["result"] = {"meta": {name: meta[name] for name in _COUNTS if name in meta}}
    return {"op": op, **kept}
