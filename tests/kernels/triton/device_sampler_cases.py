"""Runs in a process of its own with TRITON_INTERPRET=1: what the runner for devices asks of the kernels, against torch."""

from __future__ import annotations

import torch

from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.torch_sampling import TorchSampling
from sglang_lite.runtime.execution.triton_sampling import TritonSampling
from sglang_lite.runtime.scheduler.plan import LogprobTarget, RowPlan
from tests.runtime.execution.device_specs import VOCAB, every_way_to_sample
from tests.runtime.execution.support import plan_of, row
from tests.support.exact_model import ExactModel, NoAttention, exact_pool


def rows() -> list[RowPlan]:
    made = []
    for i, drawn in enumerate(every_way_to_sample()):
        ids = (3 + i, 20 + i, 4)
        drawn = drawn._replace(position=3, prompt_ids=ids[:1], output_ids=(20 + i, 4, 4))
        made.append(row(f"r{i}", ids, [1 + i], sample=drawn, targets=[LogprobTarget(1, (4, 5), i % 3)]))
    return made


def check_a_batch_of_every_way_to_sample() -> None:
    results = []
    for ops in (TorchSampling(), TritonSampling()):
        pool = exact_pool(32, 4)
        runner = DeviceRunner(ExactModel(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, ops=ops)
        results.append(runner.run(plan_of(*rows())).rows)
    for answer, other in zip(*results, strict=True):
        assert (answer.token_id, answer.error) == (other.token_id, other.error)
        for pairs, others in ((answer.top, other.top), (answer.asked, other.asked)):
            assert [token for token, _ in pairs] == [token for token, _ in others]
            near([value for _, value in pairs], [value for _, value in others])
        for target, known in zip(answer.targets, other.targets, strict=True):
            near(target.logprobs, known.logprobs)
            assert [token for token, _ in target.top] == [token for token, _ in known.top]


def check_rows_of_no_numbers() -> None:
    """The one that fails is told by its numbers, whatever the kernel draws of it."""

    class Broken(ExactModel):
        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = super().logits(hidden).clone()
            logits[::2, 3] = float("nan")
            return logits

    pool = exact_pool(32, 4)
    runner = DeviceRunner(Broken(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, ops=TritonSampling())
    answers = runner.run(plan_of(*(r._replace(targets=()) for r in rows()))).rows
    assert [answer.error is None for answer in answers] == [i % 2 == 1 for i in range(len(answers))]


def near(values: object, others: object) -> None:
    torch.testing.assert_close(torch.tensor(values), torch.tensor(others), atol=1e-5, rtol=0)


if __name__ == "__main__":
    for check in (check_a_batch_of_every_way_to_sample, check_rows_of_no_numbers):
        check()
        print(check.__name__)
