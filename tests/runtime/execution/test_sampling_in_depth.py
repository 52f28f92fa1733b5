"""The real sampler under the real scheduler: what a row draws does not depend on chunks, company, retracts or overlap."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.fake_runner import FakeRunner
from sglang_lite.runtime.execution.sampler import Sampler
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import Plan, RowResult, StepResult
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, VOCAB, Harness, config

PROMPT = tuple(2 + (i * i + i // 3) % 10 for i in range(40))


class SamplingRunner(FakeRunner):
    """The fake model's canaries, and logits that are a hash of the row's tokens, drawn from by the real sampler."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        super().__init__(num_pages, page_size, VOCAB)
        self.sampler = Sampler(VOCAB, (EOS,))

    def run(self, plan: Plan) -> StepResult:
        checked = super().run(plan)
        rows = [self._draw(row, result) for row, result in zip(plan.rows, checked.rows, strict=True)]
        return StepResult(plan.step, tuple(rows))

    def _draw(self, row: object, result: RowResult) -> RowResult:
        spec = row.sample  # type: ignore[attr-defined]
        if spec is None:
            return result
        known = (*spec.prompt_ids, *spec.output_ids)
        logits = np.array([self.oracle.logprob(hash_of(known), t) for t in range(VOCAB)], np.float32) / 4
        return RowResult(self.sampler.sample(logits, spec, "r"))


def hash_of(ids: tuple[int, ...]) -> np.uint64:
    return np.uint64(sum((t + 1) * 1_000_003**i for i, t in enumerate(ids)) % (1 << 64))


def params(**changes: object) -> SamplingParams:
    values: dict[str, object] = {"max_new_tokens": 14, "seed": 3, "temperature": 1.0}
    return SamplingParams(**(values | changes))  # type: ignore[arg-type]


def requests() -> list[AddReq]:
    several = [
        params(repetition_penalty=1.8, temperature=0.0),
        params(frequency_penalty=2.0),
        params(presence_penalty=2.0, seed=4),
        params(logit_bias=((7, 4.0), (3, -100.0)), ignore_eos=True),
        params(min_new_tokens=6, stop_token_ids=(4, 5)),
        params(stop_regex=("[a-c]{2}",), seed=9),
        params(stop=("ab",), top_k=3, top_p=0.8),
        params(seed=1),
        params(seed=2),
    ]
    adds = [AddReq(f"r{i}", PROMPT[: 9 + 3 * i], sampling) for i, sampling in enumerate(several)]
    grammar = FakeGrammar([frozenset({6, 7, 8}), frozenset({2, 9}), frozenset(range(6, 12))], EOS)
    return [*adds, AddReq("grammar", PROMPT[:8], params(presence_penalty=1.0), grammar=grammar)]


def run(retract_every: int = 0, *, alone: bool = False, **changes: object) -> dict[str, list[int]]:
    harness = Harness(config(**changes), num_pages=200)
    harness.runner = SamplingRunner(200, 4)
    count = 0
    groups = [[add] for add in requests()] if alone else [requests()]
    for group in groups:
        harness.step(*group)
        while harness.scheduler.has_work:
            harness.step()
            count += 1
            if retract_every and count % retract_every == 0 and count < 90:
                harness.settle()
                for rid in sorted(harness.adds)[count % 3 :: 3]:
                    harness.scheduler.retract(rid)
    assert not retract_every or harness.scheduler.statistics().retractions > 5
    assert all(final.error is None for final in harness.finals.values())
    return {rid: final.ids for rid, final in harness.finals.items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return run(alone=True)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunk", [4, 12, None])
@pytest.mark.parametrize("batching", ["prefill-first", "mixed", "decode-first"])
@pytest.mark.parametrize("retract_every", [0, 3])
def test_every_row_is_drawn_by_its_own_parameters_and_tokens(
    expected: dict[str, list[int]], overlap: bool, chunk: int | None, batching: str, retract_every: int
) -> None:
    changes = {"chunked_prefill_size": chunk, "batching": batching, "disable_overlap_schedule": not overlap}
    assert run(retract_every, **changes) == expected


def test_the_parameters_do_what_they_say(expected: dict[str, list[int]]) -> None:
    assert 3 not in expected["r3"]
    assert expected["r3"].count(7) > 5
    assert not {4, 5, EOS} & set(expected["r4"][:6])
    assert expected["r7"] != expected["r8"]
    assert len(set(expected["r1"])) > 6
