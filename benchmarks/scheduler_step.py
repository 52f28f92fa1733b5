"""What a scheduler step costs without a model: `python -m benchmarks.scheduler_step`.

Prints microseconds of processor time a step (the least of several runs: the machine may be shared): decode steps with 1, 16 and 256
running requests and nobody waiting, and with 1,000 waiting; then a radix match and an insert of 1,024 tokens apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import Plan, RowResult, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler

VOCAB = 49152
PAGE = 16
PROMPT_LEN = 128
STEPS = 200
REPEATS = 4


def answer(plan: Plan) -> StepResult:
    """A model that says token 7."""
    result = RowResult(7)
    return StepResult(plan.step, (result,) * len(plan.rows))


def scheduler(num_running: int, *, overlap: bool) -> Scheduler:
    """A scheduler with room for so many requests of 2,300 tokens."""
    kv = KvManager(num_rows=num_running, num_pages=num_running * 150 + 200, page_size=PAGE, max_len=4096)
    settings = SchedulerConfig(
        context_length=4096,
        vocab_size=VOCAB,
        max_running_requests=num_running,
        max_prefill_tokens=1 << 20,
        chunked_prefill_size=None,
        disable_overlap_schedule=not overlap,
    )
    return Scheduler(settings, kv, [b"a"] * VOCAB)


def decode_step_us(num_running: int, num_waiting: int = 0) -> float:
    """Microseconds of a step in which so many requests decode."""
    best = float("inf")
    for repeat in range(REPEATS):
        sched = scheduler(num_running, overlap=False)
        rng = np.random.default_rng(repeat)
        params = SamplingParams(max_new_tokens=2000, temperature=0.0, ignore_eos=True, seed=0)
        adds = [
            AddReq(f"r{i}", tuple(rng.integers(0, VOCAB, PROMPT_LEN).tolist()), params)
            for i in range(num_running + num_waiting)
        ]
        plan = sched.step(adds[:num_running])
        while True:
            sched.commit(answer(plan))
            plan = sched.step()
            if len(plan.rows) == num_running and plan.rows[0].extend_len == 1:
                break
        sched.commit(answer(plan))
        sched.commit(answer(sched.step(adds[num_running:])))
        started = time.process_time()
        for _ in range(STEPS):
            sched.commit(answer(sched.step()))
        best = min(best, (time.process_time() - started) / STEPS)
    return best * 1e6


def fastest_us(function: Callable[[int], object], number: int = 200) -> float:
    """The fastest of `number` calls in microseconds; each call gets its number."""
    best = float("inf")
    for i in range(number):
        started = time.perf_counter()
        function(i)
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def radix_us() -> tuple[float, float]:
    """Microseconds of a match and of an insert of 1,024 tokens into a tree of 200 such prompts."""
    kv = KvManager(num_rows=4, num_pages=64 * 700, page_size=PAGE, max_len=2048)
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, VOCAB, (600, 1024), dtype=np.int32)

    def insert_all(rows: np.ndarray) -> list[float]:
        times: list[float] = []
        for ids in rows:
            admission = kv.admit("", ids, match_limit=1023, new_len=1024)
            assert admission is not None
            kv.commit(admission.hold, 1024)
            started = time.perf_counter()
            kv.checkpoint(admission.hold, ids)
            times.append(time.perf_counter() - started)
            kv.release(admission.hold, ids)
        return times

    insert_all(prompts[:200])
    match = fastest_us(lambda i: kv.probe("", prompts[i], 1023))
    return match, min(insert_all(prompts[200:600])) * 1e6


def main() -> None:
    """Measure and print."""
    for num_running, num_waiting in ((1, 0), (16, 0), (256, 0), (1, 1000), (16, 1000), (256, 1000)):
        cost = decode_step_us(num_running, num_waiting)
        print(f"step, {num_running} running, {num_waiting} waiting: {cost:.0f} us ({cost / num_running:.1f} us a row)")
    match, insert = radix_us()
    print(f"radix match of 1,024 tokens: {match:.1f} us; insert: {insert:.1f} us")


if __name__ == "__main__":
    main()
