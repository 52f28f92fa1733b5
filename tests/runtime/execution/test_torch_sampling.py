"""Masks, penalties, draws and scores over many rows at once are those of the plain definitions, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens
from sglang_lite.kernels.reference.token_mask import apply_token_mask
from sglang_lite.runtime.execution.logprobs import LogprobRow
from sglang_lite.runtime.execution.torch_sampling import TorchSampling

OPS = TorchSampling()
RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("vocab", [5, 32, 77])
def test_draws_are_the_definitions(vocab: int) -> None:
    """With ties, masked tokens and numbers at both ends."""
    rows = 60
    logits = np.round(RANDOM.standard_normal((rows, vocab)) * 2, 1).astype(np.float32)
    logits[::4, ::3] = -np.inf
    heat = RANDOM.choice([0.3, 1.0, 2.5], rows).astype(np.float32)
    top_k = RANDOM.choice([0, 1, 3, vocab], rows).astype(np.int32)
    top_p = RANDOM.choice([1.0, 0.9, 0.3], rows)
    min_p = RANDOM.choice([0.0, 0.1, 0.6], rows).astype(np.float32)
    number = RANDOM.choice([0.0, 0.2, 0.55, 1 - 2**-53], rows)
    out = torch.empty(rows, dtype=torch.int64)
    given = (torch.from_numpy(array) for array in (logits, heat, top_k, top_p, min_p, number))
    OPS.sample(*given, out)
    for i in range(rows):
        kept = kept_tokens(logits[i], heat[i], int(top_k[i]) or -1, float(top_p[i]), float(min_p[i]))
        assert out[i] == draw_token(logits[i], heat[i], kept, float(number[i])), i


def test_greedy_takes_the_lowest_id_of_the_best() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [float("-inf"), 0.0, -1.0]])
    zeros, out = torch.zeros(3), torch.empty(3, dtype=torch.int64)
    OPS.sample(logits, zeros, zeros.int(), zeros.double() + 1, zeros, zeros.double() + 0.9, out)
    assert out.tolist() == [1, 0, 1]


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 90])
@pytest.mark.parametrize("num_masks", [0, 2, 3])
def test_masks_are_the_definitions_in_the_first_rows(vocab: int, num_masks: int) -> None:
    logits = RANDOM.standard_normal((3, vocab)).astype(np.float32)
    bitmask = RANDOM.integers(-(2**31), 2**31, (num_masks, -(-vocab // 32))).astype(np.int32)
    expected = logits.copy()
    apply_token_mask(expected, bitmask, np.arange(num_masks))
    got = torch.from_numpy(logits)
    OPS.apply_masks(got, torch.from_numpy(bitmask))
    assert np.array_equal(got.numpy(), expected)


def test_scores_are_the_definitions() -> None:
    logits = np.round(RANDOM.standard_normal((4, 30)) * 3, 1).astype(np.float32)
    rows, ids = np.array([0, 3, 3]), np.array([29, 0, 5])
    found = OPS.score(torch.from_numpy(logits), torch.from_numpy(rows), torch.from_numpy(ids), torch.tensor([2, 0]), 6)
    lines = [LogprobRow.from_logits(line, "scoring") for line in logits]
    expected = [lines[row].of((int(token),), "scoring")[0] for row, token in zip(rows, ids, strict=True)]
    assert found.values.tolist() == pytest.approx(expected, abs=1e-6)
    for i, row in enumerate((2, 0)):
        top = lines[row].top(6)
        assert found.top_ids[i].tolist() == [token for token, _ in top]
        assert found.top_values[i].tolist() == pytest.approx([value for _, value in top], abs=1e-6)
