"""Where few tokens may come, their logits alone: the same to the bit, the same tokens, and nothing that was asked for is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution import sampler
from sglang_lite.runtime.execution.native_step import NativeStep
from sglang_lite.runtime.execution.penalties import adjust_logits
from sglang_lite.runtime.scheduler.plan import LogprobTarget, RowPlan, RowResult
from tests.runtime.execution.support import TINY, AllowedTokens, row, spec, tiny_llama
from tests.runtime.execution.test_model_runner import IDS, Bench
from tests.runtime.execution.test_native_step import arch_model, native_driver, save_gguf, tiny_file

TORCH = tiny_llama()


class WholeModel:
    """A model whose logits of a row do not depend on how many rows are asked for."""

    def __init__(self) -> None:
        self.forward = TORCH.forward

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.cat([TORCH.logits(line[None]) for line in hidden])


class FewModel(WholeModel):
    """The same, and it takes note of the tokens that it was asked for alone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[int]] = []

    def logits_of(self, hidden: torch.Tensor, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        self.asked += [own.tolist() for own in ids]
        return [line[own] for line, own in zip(self.logits(hidden).numpy(), ids, strict=True)]


MODEL = WholeModel()


@pytest.fixture(autouse=True)
def torch_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "make_attention", staticmethod(TorchAttention))


def results_of(model: Any, rows: Sequence[RowPlan], **runner_args: Any) -> tuple[tuple[RowResult, ...], Bench]:
    bench = Bench(model, 4, **runner_args)
    planned = [one._replace(pages=np.array(bench.pages(one.seq_len), np.int32)) for one in rows]
    return bench.run(*planned), bench


def masked(allowed: Sequence[int], first: int = 0, **changes: Any) -> RowPlan:
    made = spec(grammar=AllowedTokens(allowed), position=8, prompt_ids=IDS[first : first + 8], **changes)
    return row(f"r{first}", IDS[first : first + 8], [], sample=made)


CHANGES: list[dict[str, Any]] = [
    {},
    {"temperature": 1.3, "seed": 4},
    {"temperature": 0.8, "seed": 5, "top_k": 2, "top_p": 0.7, "min_p": 0.1},
    {"repetition_penalty": 1.7, "logit_bias": ((3, -4.0), (9, 2.5))},
    {"temperature": 2.0, "seed": 1, "frequency_penalty": 1.0, "output_ids": (3, 3, 9)},
    {"min_new_tokens": 3, "stop_token_ids": (3,)},
]


@pytest.mark.parametrize("head_rows", [1, 2, 256])
def test_tokens_are_those_of_the_whole_head_and_mask_in_any_company(head_rows: int) -> None:
    rows = [masked([3, 9, 40, 96], 8 * i, **changes) for i, changes in enumerate(CHANGES)]
    rows.insert(2, row("free", IDS[60:70], [], sample=spec()))
    rows.insert(4, row("scored", IDS[70:80], [], targets=[LogprobTarget(3, (5,)), LogprobTarget(9, (6,))]))
    model = FewModel()
    few, bench = results_of(model, rows, head_rows=head_rows)
    whole, _ = results_of(MODEL, rows)
    assert few == whole
    assert model.asked == [[3, 9, 40, 96]] * 5 + [[9, 40, 96]]
    counters = bench.runner.counters
    assert (counters.few_head_rows, counters.head_rows, counters.sampled) == (6, 3, 7)


def test_guesses_are_judged_in_order_by_few_logits_and_by_all() -> None:
    """Every second place has a mask; the third guess is not what is drawn."""
    whole = list(IDS[:8])
    for _ in range(3):
        plan = row("r", whole, [], sample=spec(position=len(whole), prompt_ids=whole))
        whole.append(results_of(MODEL, [plan])[0][0].token_id or 0)
    ids = [*whole[:10], (whole[10] + 1) % TINY.vocab_size]
    specs = [
        spec(position=i, prompt_ids=IDS[:8], output_ids=ids[8:i], grammar=AllowedTokens([ids[i], whole[i], 5]))
        for i in range(8, 11)
    ]
    specs[1] = specs[1]._replace(grammar=None)
    last = spec(position=11, prompt_ids=IDS[:8], output_ids=ids[8:], grammar=AllowedTokens([1, 2]))
    plan = row("r", ids, [], sample=last)._replace(drafts=tuple(specs))
    few, _ = results_of(FewModel(), [plan])
    assert few == results_of(MODEL, [plan])[0]
    assert [kept.token_id for kept in few[0].kept] == whole[8:10]
    assert few[0].token_id == whole[10]


def test_log_probabilities_need_all_logits() -> None:
    plan = masked([3, 9])
    assert plan.sample is not None
    asked = plan._replace(sample=plan.sample._replace(logprob=LogprobParams(top_num=2, token_ids=(7,))))
    beside = plan._replace(rid="beside", targets=(LogprobTarget(7, (4,)),))
    model = FewModel()
    few, _ = results_of(model, [asked, beside])
    assert few == results_of(MODEL, [asked, beside])[0]
    assert not model.asked


def test_a_given_last_token_of_which_nothing_is_asked_needs_no_logits() -> None:
    plan = masked([3, 9])
    assert plan.sample is not None
    given = plan._replace(sample=plan.sample._replace(given=9))
    results, bench = results_of(MODEL, [given])
    assert (results[0].token_id, bench.runner.counters.head_rows) == (9, 0)
    asked = given._replace(sample=plan.sample._replace(given=9, logprob=LogprobParams()))
    results, bench = results_of(MODEL, [asked])
    assert (results[0].token_id, bench.runner.counters.head_rows) == (9, 1)
    assert results[0].logprob is not None


@pytest.mark.parametrize(("num_allowed", "num_asked"), [(3, 1), (4, 0)])
def test_many_tokens_come_with_the_whole_head(
    monkeypatch: pytest.MonkeyPatch, num_allowed: int, num_asked: int
) -> None:
    monkeypatch.setattr(sampler, "FEW_IDS", 3)
    model = FewModel()
    for changes in CHANGES[:5]:
        plan = masked(range(20, 20 + num_allowed), **changes)
        model.asked = []
        few, _ = results_of(model, [plan])
        assert few == results_of(MODEL, [plan])[0]
        assert few[0].token_id in range(20, 20 + num_allowed)
        assert len(model.asked) == num_asked


def test_faults_are_those_of_the_whole_head() -> None:
    class Damaged(FewModel):
        def logits_of(self, hidden: torch.Tensor, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
            return [np.full(len(own), np.nan, np.float32) for own in ids]

    (dead, good), _ = results_of(FewModel(), [masked([]), masked([4], 8)])
    assert isinstance(dead.error, DeadEndError)
    assert good.token_id == 4
    (damaged, free), _ = results_of(Damaged(), [masked([4, 5]), row("free", IDS[:4], [], sample=spec())])
    assert isinstance(damaged.error, ExecutionError)
    assert "NaN" in str(damaged.error)
    assert free.error is None
    plan = masked([4, 5], logit_bias=((500, 1.0),))
    (wrong,), _ = results_of(FewModel(), [plan])
    assert str(wrong.error) == str(results_of(MODEL, [plan])[0][0].error)


@pytest.mark.native
@pytest.mark.parametrize("storage", ["F16", "Q4_0", "Q4_1", "Q8_0"])
def test_the_native_head_gives_a_tokens_score_alone_as_among_all_to_the_bit(tmp_path: Path, storage: str) -> None:
    path = tiny_file(tmp_path, storage=GGMLQuantizationType[storage])
    check_native(path, tmp_path, 32)


@pytest.mark.native
def test_bounded_scores_are_bounded_there_too(tmp_path: Path) -> None:
    path = save_gguf(tmp_path / "gemma2.gguf", arch_model("gemma2"), "gemma2")
    check_native(path, tmp_path, 64)


def check_native(path: Path, cache: Path, unit: int) -> None:
    random = np.random.default_rng(3)
    for threads in (1, 3):
        native = native_driver(path, cache, threads=threads).module
        assert isinstance(native, NativeStep)
        config = native._config
        hidden = torch.from_numpy(random.standard_normal((7, config.hidden_size)).astype(np.float32))
        whole = native.logits(hidden).numpy()
        for num in (1, 2, unit):
            ids = [np.sort(random.choice(config.vocab_size, num, replace=False)) for _ in range(7)]
            ids[3] = np.array([config.vocab_size - 1])
            for own, line, got in zip(ids, whole, native.logits_of(hidden, ids), strict=True):
                np.testing.assert_array_equal(got, line[own])


@pytest.mark.parametrize("limit", [2, sampler.FEW_IDS])
@pytest.mark.parametrize("penalties", [{}, {"logit_bias": ((2, 1.5), (7, -1.0)), "repetition_penalty": 1.4}])
def test_draws_under_a_mask_follow_the_renormalised_distribution(
    monkeypatch: pytest.MonkeyPatch, limit: int, penalties: dict[str, Any]
) -> None:
    """Pearson's statistic of 6,000 seeded draws over 5 tokens; for 4 degrees of freedom it exceeds 23.5 once in 10,000.

    Few logits, the whole row with few legal tokens, and the whole row with many (`limit` 2) draw the same.
    """
    monkeypatch.setattr(sampler, "FEW_IDS", limit)
    allowed = np.array([2, 7, 31, 32, 39])
    logits = np.random.default_rng(5).standard_normal(40).astype(np.float32)
    own = sampler.Sampler(40)
    made = spec(grammar=AllowedTokens(allowed.tolist()), temperature=0.9, prompt_ids=(7, 39), **penalties)
    weights = np.exp((adjust_logits(logits, made)[allowed].astype(np.float64)) / 0.9)
    expected = 6_000 * weights / weights.sum()
    drawn = np.zeros(40)
    for position in range(6_000):
        placed = made._replace(position=position)
        token = own.sample(logits, placed, "r")
        drawn[token] += 1
        if position < 200 and (ids := own.few_ids(placed, "r")) is not None:
            assert own.sample_among(logits[ids], ids, placed, "r") == token
    assert drawn.sum() == drawn[allowed].sum()
    assert ((drawn[allowed] - expected) ** 2 / expected).sum() < 23.5
