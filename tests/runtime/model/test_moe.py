"""The experts of a layer: each way to run them gives the same, and a token's result is its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sglang_lite.runtime.model import moe
from sglang_lite.runtime.model.config import ExpertsConfig
from sglang_lite.runtime.model.moe import ExpertWeights, SparseMLP
from tests.runtime.model.test_weights import Tensor

HIDDEN, INNER, COUNT = 16, 8, 6


def make(per_token: int = 2, renormalise: bool = True) -> SparseMLP:
    torch.manual_seed(5)
    mlp = SparseMLP(HIDDEN, ExpertsConfig(COUNT, per_token, INNER, renormalise), "silu")
    for parameter in mlp.parameters():
        parameter.data.normal_()
    return mlp


def tokens(count: int) -> torch.Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("per_token", [1, 2, COUNT])
@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_every_way_to_run_the_experts_gives_the_same(
    per_token: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two of recorded graphs among them, the second in pieces of a few experts."""
    mlp, x = make(per_token), tokens(count)
    monkeypatch.setattr(moe, "_CHUNK_NUMBERS", 4 * count * (2 * INNER + HIDDEN))
    weights, chosen = mlp.route(x)
    expected = mlp(x)
    assert expected.shape == x.shape
    for run in (mlp.run_gathered, mlp.run_every_expert):
        torch.testing.assert_close(run(x, weights, chosen), expected, atol=1e-5, rtol=1e-5)


def test_the_result_is_the_weighted_sum_over_a_tokens_experts() -> None:
    """Written out, expert by expert; the weights sum up to 1 only if they are asked to."""
    for renormalise in (False, True):
        mlp, x = make(renormalise=renormalise), tokens(1)
        weights, chosen = mlp.route(x)
        scores = torch.softmax(x @ mlp.router.T, dim=-1)[0]
        assert chosen[0].tolist() == scores.argsort(descending=True)[:2].tolist()
        share = scores[chosen[0]] / (scores[chosen[0]].sum() if renormalise else 1)
        expected = torch.zeros(HIDDEN)
        for weight, expert in zip(share, chosen[0], strict=True):
            gate, up = (mlp.gate_up.weight[expert] @ x[0]).chunk(2)
            expected += weight * (mlp.down.weight[expert] @ (torch.nn.functional.silu(gate) * up))
        torch.testing.assert_close(mlp(x)[0], expected, atol=1e-4, rtol=1e-5)
        assert (abs(float(weights.sum()) - 1) < 1e-6) == renormalise


def test_a_tokens_experts_are_added_in_one_order_whatever_stands_beside_it() -> None:
    """Products of 0 and small whole numbers are exact, so the sum's order is all that could differ: here it would."""
    mlp = make(per_token=3)
    mlp.gate_up.weight.data.fill_(1.0)
    x = torch.ones(1, HIDDEN)
    _, chosen = mlp.route(x)
    mlp.down.weight.data.zero_()
    for expert, value in zip(sorted(chosen[0].tolist()), (1e8, 1.0, -1e8), strict=True):
        mlp.down.weight.data[expert] = value / INNER
    weights = torch.ones(1, 3)
    alone = mlp.run_grouped(x, weights, chosen)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        rows = torch.cat((chosen[:, order], chosen, chosen.flip(1)))
        together = mlp.run_grouped(x.expand(3, -1), weights.expand(3, -1), rows)
        assert all(torch.equal(row, alone[0]) for row in together)


def test_an_overflow_in_an_expert_that_a_token_does_not_take_stays_out() -> None:
    mlp, x = make(per_token=1), tokens(3)
    weights, chosen = mlp.route(x)
    other = next(expert for expert in range(COUNT) if expert not in chosen)
    mlp.down.weight.data[other] = float("inf")
    assert torch.isfinite(mlp.run_every_expert(x, weights, chosen)).all()


def test_half_precision_keeps_its_type() -> None:
    mlp, x = make().to(torch.bfloat16), tokens(5)
    got = mlp(x.to(torch.bfloat16))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), mlp.float()(x.to(torch.bfloat16).float()), atol=0.5, rtol=0.1)


def test_weights_come_as_one_tensor_of_all_experts_or_as_one_of_each() -> None:
    values = np.random.default_rng(0).normal(size=(COUNT, 2 * INNER, HIDDEN)).astype(np.float32)
    whole, halves, single = (ExpertWeights(COUNT, HIDDEN, 2 * INNER) for _ in range(3))
    whole.load_rows(0, Tensor("all", values), None)
    halves.load_rows(INNER, Tensor("ups", values[:, INNER:]), None)
    halves.load_rows(0, Tensor("gates", values[:, :INNER]), None)
    for expert in reversed(range(COUNT)):
        for first in (0, INNER):
            part = Tensor("one", values[expert, first : first + INNER], Path("part"))
            single.load_rows(expert * 2 * INNER + first, part, None)
    for filled in (whole, halves, single):
        assert np.array_equal(filled.weight.numpy(), values)
