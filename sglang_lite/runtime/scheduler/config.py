"""The scheduler's configuration; it knows no model and no memory sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sglang_lite.errors import RequestError

SchedulePolicy: TypeAlias = Literal["lpm", "fcfs"]
"""Order of the waiting queue: longest cached prefix first (with ageing), or first come first served."""

Batching: TypeAlias = Literal["prefill-first", "mixed", "decode-first"]
"""`prefill-first`: prefills run in steps of their own, before decode. `mixed`: decode rows ride along with prefills.
`decode-first`: every step decodes, and prefills get what is left of the step's tokens and pages."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and choices, in tokens unless said; a wrong value raises `RequestError`.

    `max_running_requests`: requests that hold KV at once. `chunked_prefill_size`: prompt tokens of one step, longer
    prompts are cut (None: never cut). `max_prefill_tokens`: prompt tokens of one step, the first prompt excepted.
    `schedule_conservativeness`: above 1 keeps more KV in reserve for running requests. `scan_window`: waiting
    requests looked at in one step. `min_shared_tokens`: how much a request must save to wait for another's prefix.
    `ageing_slack`: how many requests may overtake a waiting one.
    """

    context_length: int
    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    max_running_requests: int = 256
    chunked_prefill_size: int | None = 2048
    max_prefill_tokens: int = 16384
    schedule_policy: SchedulePolicy = "lpm"
    batching: Batching = "prefill-first"
    schedule_conservativeness: float = 1.0
    scan_window: int = 128
    min_shared_tokens: int = 8
    ageing_slack: int = 64

    def __post_init__(self) -> None:
        """Check every field; the message names the field, the value and what is allowed."""
        chunk = self.chunked_prefill_size
        rules = (
            ("context_length", self.context_length >= 1, "at least 1"),
            ("vocab_size", self.vocab_size >= 1, "at least 1"),
            ("eos_ids", all(0 <= i < self.vocab_size for i in self.eos_ids), f"ids below {self.vocab_size}"),
            ("max_running_requests", self.max_running_requests >= 1, "at least 1"),
            ("chunked_prefill_size", chunk is None or chunk >= 1, "at least one page, or None to never cut a prompt"),
            ("max_prefill_tokens", self.max_prefill_tokens >= 1, "at least 1"),
            ("schedule_policy", self.schedule_policy in get_args(SchedulePolicy), f"one of {get_args(SchedulePolicy)}"),
            ("batching", self.batching in get_args(Batching), f"one of {get_args(Batching)}"),
            ("schedule_conservativeness", self.schedule_conservativeness > 0, "a number above 0"),
            ("scan_window", self.scan_window >= 1, "at least 1"),
            ("min_shared_tokens", self.min_shared_tokens >= 1, "at least 1"),
            ("ageing_slack", self.ageing_slack >= 0, "at least 0"),
        )
        for name, ok, allowed in rules:
            if not ok:
                raise RequestError(f"configuring the scheduler: {name}={getattr(self, name)!r}, expected {allowed}")
