"""Requests through the scheduler and the device's runner, without an engine: no tokenizer, no text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.model_runner import CausalModel
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.loop import make_loop
from sglang_lite.runtime.scheduler.messages import AddReq, Message
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.runtime.scheduler.statistics import SchedulerStatistics
from sglang_lite.sampling_params import SamplingParams


@dataclass(frozen=True)
class Model:
    """What runs: a model (perhaps behind graphs), its attention, its pool."""

    model: CausalModel
    attention: AttentionBackend
    pool: KvPool
    vocab_size: int
    context_length: int
    device: str


class Server:
    """A scheduler over a model, driven to its end by `run`."""

    def __init__(self, model: Model, *, overlap: bool, max_running: int = 256, conservativeness: float = 1.0) -> None:
        kv = KvManager(
            num_rows=max_running,
            num_pages=model.pool.num_pages,
            page_size=model.pool.page_size,
            max_len=model.context_length,
        )
        settings = SchedulerConfig(
            context_length=model.context_length,
            vocab_size=model.vocab_size,
            max_running_requests=max_running,
            disable_overlap_schedule=not overlap,
            launch_ahead=overlap,
            schedule_conservativeness=conservativeness,
        )
        self.scheduler = Scheduler(settings, kv, [b"a"] * model.vocab_size)
        self.runner = DeviceRunner(
            model.model, model.attention, model.pool, vocab_size=model.vocab_size, device=model.device
        )
        self._loop = make_loop(self.scheduler, self.runner)
        self._number = 0

    def run(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[list[int]]:
        """The tokens after each prompt. The memory's ledger is checked at the end."""
        rids = [f"r{self._number + i}" for i in range(len(prompts))]
        self._number += len(prompts)
        messages: list[Message] = [AddReq(rid, tuple(ids), params) for rid, ids in zip(rids, prompts, strict=True)]
        found: dict[str, list[int]] = {rid: [] for rid in rids}
        while messages or self.scheduler.has_work:
            for output in self._loop.step(messages):
                found[output.rid] += output.new_ids
                if output.finished is not None and output.finished.error is not None:
                    raise output.finished.error
            messages = []
        self.scheduler.check_invariants()
        return [found[rid] for rid in rids]

    def statistics(self) -> SchedulerStatistics:
        """Counts since the start."""
        return self.scheduler.statistics()


def greedy(tokens: int) -> SamplingParams:
    """So many tokens, the best each time."""
    return SamplingParams(temperature=0.0, max_new_tokens=tokens, ignore_eos=True)


def timed_run(
    server: Server, prompts: Sequence[Sequence[int]], tokens: int
) -> tuple[list[list[int]], Mapping[str, float]]:
    """As `Server.run`, with seconds and with how many tokens were computed."""
    before, start = server.statistics(), time.perf_counter()
    outputs = server.run(prompts, greedy(tokens))
    after = server.statistics()
    return outputs, {
        "seconds": time.perf_counter() - start,
        "steps": after.step - before.step,
        "computed_tokens": after.computed_tokens - before.computed_tokens,
    }
