"""The scheduler's configuration; it knows no model and no memory sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sglang_lite.errors import RequestError
from sglang_lite.sampling_params import JumpForward

SchedulePolicy: TypeAlias = Literal["lpm", "fcfs", "dfs-weight", "lof", "random", "priority"]
"""Order of the waiting queue, see `policy.order_waiting`. `priority`: first come first served with priorities on."""

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
    `ageing_tokens`: how many tokens may be computed for others, beyond those of the requests ahead, before a waiting
    request goes first. `enable_priority_scheduling`: requests may carry a priority, higher first, or lower first with
    `schedule_low_priority_values_first`; the policy orders those of equal priority. `max_queued_requests`: more
    waiting ones are refused (None: no limit). `random_seed`: of the random policy. `disable_overlap_schedule`: False
    lets one step be planned while the one before it is in flight; with `launch_ahead` it is launched, too, before that one's
    tokens are known here (`loop.AsyncLoop`). `jump_forward`: what is done with tokens that a
    constraint forces, where a request does not say. `num_ngram_tokens`: most tokens guessed from a request's earlier
    text and computed together (0: none); the output stays the same. `num_draft_tokens`: the same where a draft model guesses
    (`RowResult.guesses`); then earlier text does not.
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
    ageing_tokens: int = 16384
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    max_queued_requests: int | None = None
    random_seed: int = 0
    disable_overlap_schedule: bool = True
    launch_ahead: bool = False
    jump_forward: JumpForward = "verify"
    num_ngram_tokens: int = 0
    num_draft_tokens: int = 0

    def __post_init__(self) -> None:
        """Check every field; the message names the field, the value and what is allowed."""
        chunk, limit = self.chunked_prefill_size, self.max_queued_requests
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
            ("ageing_tokens", self.ageing_tokens >= 0, "at least 0"),
            ("launch_ahead", not (self.launch_ahead and self.disable_overlap_schedule), "False where overlap is off"),
            ("jump_forward", self.jump_forward in get_args(JumpForward), f"one of {get_args(JumpForward)}"),
            ("num_ngram_tokens", self.num_ngram_tokens >= 0, "at least 0"),
            ("num_draft_tokens", self.num_draft_tokens >= 0, "at least 0"),
            ("max_queued_requests", limit is None or limit >= 1, "at least 1, or None for no limit"),
        )
        for name, ok, allowed in rules:
            if not ok:
                raise RequestError(f"configuring the scheduler: {name}={getattr(self, name)!r}, expected {allowed}")

    @property
    def uses_priority(self) -> bool:
        """Priorities of requests count."""
        return self.enable_priority_scheduling or self.schedule_policy == "priority"
