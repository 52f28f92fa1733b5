"""The runner for devices: launched before its tokens are known, told later how to sample, told apart from its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, LogprobTarget, Plan, RowPlan
from tests.runtime.execution.device_specs import VOCAB, every_way_to_sample
from tests.runtime.execution.support import AllowedTokens, plan_of, row, spec
from tests.support.exact_model import ExactModel, NoAttention, exact_pool
from tests.support.simulated_device import SimulatedQueue

PAGE = 4


def make(queue: SimulatedQueue | None = None, **values: object) -> DeviceRunner:
    pool = exact_pool(32, PAGE)
    settings = {"vocab_size": VOCAB, "eos_ids": {1}, "queue": queue} | values
    return DeviceRunner(ExactModel(pool, VOCAB), NoAttention(), pool, **settings)  # type: ignore[arg-type]


def on_host() -> ModelRunner:
    pool = exact_pool(32, PAGE)
    return ModelRunner(ExactModel(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, eos_ids={1})


def prompt(rid: str, ids: Sequence[int], page: int, **changes: object) -> RowPlan:
    drawn = spec(position=len(ids), prompt_ids=tuple(ids), **changes)  # type: ignore[arg-type]
    return row(rid, ids, [page, page + 1], sample=drawn)


def ahead(rid: str, at: int, page: int) -> RowPlan:
    return row(rid, [FUTURE_TOKEN], [page, page + 1], prefix_len=at, sample=spec(position=at + 1))._replace(
        is_future=True
    )


def known(plan: Plan, tokens: Sequence[int], prompts: Sequence[Sequence[int]], **changes: object) -> Plan:
    rows = [
        before._replace(
            input_ids=(token,),
            is_future=False,
            sample=spec(position=before.seq_len, prompt_ids=tuple(ids), output_ids=(token,), **changes),  # type: ignore[arg-type]
        )
        for before, token, ids in zip(plan.rows, tokens, prompts, strict=True)
    ]
    return plan_of(*rows, step=plan.step)


PROMPTS = [(5, 6, 7), (8, 9), (10, 11, 12, 13, 14)]


def decode_plan(step: int = 2) -> Plan:
    return plan_of(*(ahead(f"r{i}", len(ids), 1 + 3 * i) for i, ids in enumerate(PROMPTS)), step=step)


def first_plan(**changes: object) -> Plan:
    return plan_of(*(prompt(f"r{i}", ids, 1 + 3 * i, **changes) for i, ids in enumerate(PROMPTS)))


def tokens_of(result: object) -> list[int | None]:
    return [answer.token_id for answer in result.rows]  # type: ignore[attr-defined]


def test_a_step_is_launched_with_the_tokens_that_the_one_before_draws() -> None:
    """And nothing is waited for until its result is asked for."""
    queue = SimulatedQueue()
    runner = make(queue)
    first = runner.launch(first_plan())
    first.sample(first_plan())
    second = runner.launch(decode_plan())
    assert (queue.num_waits, queue.num_pending) == (0, 4)
    drawn = tokens_of(first.result())
    assert queue.num_pending == 1, "the second forward is still queued"
    resolved = known(decode_plan(), drawn, PROMPTS)  # type: ignore[arg-type]
    second.sample(resolved)
    plain = on_host()
    assert drawn == tokens_of(plain.run(first_plan()))
    assert tokens_of(second.result()) == tokens_of(plain.run(resolved))


def test_launching_a_third_step_waits_for_nothing_that_is_not_done() -> None:
    queue = SimulatedQueue()
    runner = make(queue)
    before = runner.launch(first_plan())
    before.sample(first_plan())
    prompts = [list(ids) for ids in PROMPTS]
    for step in range(2, 8):
        rows = [ahead(f"r{i}", len(ids), 1 + 3 * i) for i, ids in enumerate(prompts)]
        waits = queue.num_waits
        flight = runner.launch(plan_of(*rows, step=step))
        assert queue.num_waits == waits, "a launch waits"
        drawn = tokens_of(before.result())
        waits = queue.num_waits
        flight.sample(known(plan_of(*rows, step=step), drawn, prompts))  # type: ignore[arg-type]
        assert queue.num_waits == waits, "sampling waits"
        prompts = [[*ids, token] for ids, token in zip(prompts, drawn, strict=True)]  # type: ignore[list-item]
        before = flight
        if max(map(len, prompts)) == 8:
            break


def test_a_given_token_is_in_flight_as_a_drawn_one_is() -> None:
    queue = SimulatedQueue()
    runner = make(queue)
    plan = plan_of(*(r._replace(sample=r.sample._replace(given=30 + i)) for i, r in enumerate(first_plan().rows)))  # type: ignore[union-attr]
    first = runner.launch(plan)
    first.sample(plan)
    second = runner.launch(decode_plan())
    assert tokens_of(first.result()) == [30, 31, 32]
    assert runner.counters.head_rows == 0, "what is given needs no logits"
    second.sample(known(decode_plan(), [30, 31, 32], PROMPTS))
    second.result()


def test_a_step_that_ran_with_another_token_than_was_committed_is_an_error() -> None:
    runner = make()
    first = runner.launch(first_plan())
    first.sample(first_plan())
    drawn = tokens_of(first.result())
    second = runner.launch(decode_plan())
    second.sample(known(decode_plan(), [drawn[0], drawn[1] ^ 1, drawn[2]], PROMPTS))  # type: ignore[list-item, operator]
    with pytest.raises(
        AssertionError, match=f"row 'r1' ran with token {drawn[1]}, committed before it was {drawn[1] ^ 1}"
    ):  # type: ignore[operator]
        second.result()


def test_a_token_that_no_step_has_drawn_is_not_read() -> None:
    with pytest.raises(AssertionError, match="takes a token in flight that no row of the plan before draws"):
        make().launch(decode_plan())
    runner = make()
    runner.launch(first_plan())
    with pytest.raises(AssertionError, match="no row of the plan before draws"):
        runner.launch(decode_plan())


def test_a_row_whose_request_has_ended_meanwhile_gives_nothing() -> None:
    runner = make()
    first = runner.launch(first_plan())
    first.sample(first_plan())
    second = runner.launch(decode_plan())
    drawn = tokens_of(first.result())
    resolved = known(decode_plan(), drawn, PROMPTS)  # type: ignore[arg-type]
    ended = resolved.rows[1]._replace(input_ids=(0,), sample=None)
    second.sample(plan_of(resolved.rows[0], ended, resolved.rows[2], step=2))
    result = tokens_of(second.result())
    assert result[1] is None
    assert None not in (result[0], result[2])


def test_a_row_that_fails_leaves_the_row_launched_behind_it_harmless() -> None:
    """A dead end draws no token: what runs with it is dropped, and reads no embedding beyond the vocabulary."""
    runner = make()
    plan = first_plan()
    dead = plan.rows[1]._replace(sample=spec(position=2, prompt_ids=PROMPTS[1], grammar=AllowedTokens([])))
    plan = plan_of(plan.rows[0], dead, plan.rows[2])
    first = runner.launch(plan)
    first.sample(plan)
    second = runner.launch(decode_plan())
    result = first.result()
    assert isinstance(result.rows[1].error, DeadEndError)
    resolved = known(decode_plan(), [t or 0 for t in tokens_of(result)], PROMPTS)
    second.sample(plan_of(resolved.rows[0], resolved.rows[1]._replace(sample=None), resolved.rows[2], step=2))
    assert [t is None for t in tokens_of(second.result())] == [False, True, False]


class Broken:
    """A model whose logits after some tokens are no numbers."""

    def __init__(self, model: ExactModel, rows: Sequence[int], value: float) -> None:
        self.model, self.rows, self.value = model, list(rows), value
        self.forward = model.forward

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.model.logits(hidden).clone()
        logits[self.rows, 3] = self.value
        return logits


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_of_no_numbers_fail_alone(value: float) -> None:
    queue = SimulatedQueue()
    runner = make(queue)
    runner.model = Broken(runner.model, [1], value)  # type: ignore[arg-type]
    plan = first_plan()
    scored = plan.rows[2]._replace(targets=(LogprobTarget(4, (3,), 2),))
    result = runner.run(plan_of(plan.rows[0], plan.rows[1], scored))
    assert [type(answer.error) for answer in result.rows] == [type(None), ExecutionError, type(None)]
    assert "NaN or infinite logits" in str(result.rows[1].error)
    assert tokens_of(result)[0] == tokens_of(on_host().run(first_plan()))[0]


def test_every_way_to_sample_gives_what_the_host_gives() -> None:
    """In one batch, in pieces of two rows, and by the host's sampler."""
    rows = []
    for i, drawn in enumerate(every_way_to_sample()):
        ids = (3 + i, 20 + i, 4)
        output = (20 + i, 4, 4)
        drawn = drawn._replace(position=3, prompt_ids=ids[:1], output_ids=output)
        rows.append(row(f"r{i}", ids, [1 + i], sample=drawn, targets=[LogprobTarget(1, (4, 5), i % 3)]))
    expected = on_host().run(plan_of(*rows)).rows
    for head_rows in (2, 256):
        got = make(SimulatedQueue(), head_rows=head_rows).run(plan_of(*rows)).rows
        for answer, other in zip(got, expected, strict=True):
            assert (answer.token_id, answer.error) == (other.token_id, other.error)
            assert [t for t, _ in answer.top] == [t for t, _ in other.top]
            assert [*_values(answer)] == pytest.approx([*_values(other)], abs=1e-5)


def _values(answer):  # type: ignore[no-untyped-def]
    yield answer.logprob or 0.0
    for pairs in (answer.top, answer.asked, *(target.top for target in answer.targets)):
        yield from (value for _, value in pairs)
    for target in answer.targets:
        yield from target.logprobs


@pytest.mark.parametrize(
    "changes",
    [
        {"output_ids": (VOCAB,), "frequency_penalty": 1.0},
        {"prompt_ids": (-1,), "repetition_penalty": 1.2},
        {"logit_bias": ((VOCAB, 1.0),)},
        {"repetition_penalty": 1e-40, "prompt_ids": tuple(range(VOCAB))},
        {"logprob": LogprobParams(token_ids=(VOCAB,))},
        {"grammar": AllowedTokens([])},
    ],
)
def test_what_the_host_calls_an_error_is_the_same_error(changes: dict[str, object]) -> None:
    values = {"position": 3, "output_ids": (4,), "prompt_ids": (5, 6)} | changes
    rows = [row("bad", (5, 6, 4), [1], sample=spec(**values)), row("good", (7, 8), [2], sample=spec())]  # type: ignore[arg-type]
    got, expected = make().run(plan_of(*rows)).rows, on_host().run(plan_of(*rows)).rows
    assert str(got[0].error) == str(expected[0].error)
    assert got[0].error is not None
    assert type(got[0].error) is type(expected[0].error)
    assert got[1] == expected[1]


def test_a_target_outside_the_vocabulary_fails_its_row() -> None:
    rows = [row("bad", (5, 6), [1], targets=[LogprobTarget(0, (VOCAB,))]), row("good", (7, 8), [2], sample=spec())]
    got, expected = make().run(plan_of(*rows)).rows, on_host().run(plan_of(*rows)).rows
    assert str(got[0].error) == str(expected[0].error)
    assert got[1] == expected[1]


def test_equal_scores_go_to_the_lower_id() -> None:
    runner = make()
    runner.model = Flat(runner.model)  # type: ignore[arg-type]
    plan = plan_of(
        row("greedy", (5, 6), [1], sample=spec(logprob=LogprobParams(top_num=3))),
        row("cut", (5, 6), [2], sample=spec(temperature=1.0, seed=1, top_k=2)),
        row("mass", (5, 6), [3], sample=spec(temperature=1.0, seed=5, top_p=0.05)),
    )
    result = runner.run(plan)
    assert result.rows[0].token_id == 0
    assert [token for token, _ in result.rows[0].top] == [0, 1, 2]
    assert result.rows[1].token_id in (0, 1)
    assert result.rows[2].token_id in (0, 1, 2)


class Flat:
    def __init__(self, model: ExactModel) -> None:
        self.forward = model.forward

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.zeros((len(hidden), VOCAB))


def test_draws_follow_the_distribution() -> None:
    """Pearson's statistic of 4,000 draws over the 4 tokens that top-k leaves; for 3 degrees of freedom it exceeds 21 once in 9,000."""
    runner = make()
    drawn = np.zeros(VOCAB)
    for start in range(0, 4000, 500):
        rows = [
            row("r", (5, 6), [1], sample=spec(position=i, temperature=1.5, seed=1, top_k=4))
            for i in range(start, start + 500)
        ]
        for answer in runner.run(plan_of(*rows)).rows:
            drawn[answer.token_id] += 1
    logits = runner.model.logits(torch.tensor([[_hash_of((5, 6)), 6]]))[0].numpy().astype(np.float64)
    best = np.argsort(-logits)[:4]
    expected = np.exp(logits[best] / 1.5)
    expected *= 4000 / expected.sum()
    assert drawn[best].sum() == 4000
    assert ((drawn[best] - expected) ** 2 / expected).sum() < 21


def _hash_of(ids: Sequence[int]) -> int:
    from tests.support.fake_runner import chain

    return int(chain(ids)[-1]) % 509
