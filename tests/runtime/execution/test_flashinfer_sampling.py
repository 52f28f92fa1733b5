"""Draws that flashinfer cuts, beside the definition; the package is a stand-in with its functions in plain torch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from sglang_lite.errors import UnsupportedError
from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens
from sglang_lite.runtime.execution.flashinfer_sampling import FlashInferSampling
from sglang_lite.runtime.execution.torch_sampling import TorchSampling
from tests.support.fake_flashinfer import Fake

VOCAB = 50

SETTINGS = [  # temperature, top_k, top_p, min_p
    (1.0, 0, 1.0, 0.0),
    (0.7, 5, 1.0, 0.0),
    (1.3, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.2),
    (0.9, 10, 0.7, 0.1),
    (1.0, 1, 0.5, 0.0),
    (1.0, 500, 0.999, 0.0),
    (0.0, 0, 1.0, 0.0),
]


@pytest.fixture
def sampling(monkeypatch: pytest.MonkeyPatch) -> FlashInferSampling:
    Fake(monkeypatch)
    return FlashInferSampling(TorchSampling())


def draw(sampling: FlashInferSampling, logits: torch.Tensor, settings: list, numbers: np.ndarray) -> list[int]:
    temperature, top_k, top_p, min_p = (list(column) for column in zip(*settings, strict=True))
    out = torch.empty(len(settings), dtype=torch.int64)
    sampling.sample(
        logits,
        torch.tensor(temperature),
        torch.tensor(top_k, dtype=torch.int32),
        torch.tensor(top_p, dtype=torch.float64),
        torch.tensor(min_p),
        torch.from_numpy(numbers),
        out,
    )
    return out.tolist()


def expected(logits: np.ndarray, settings: tuple, number: float) -> int:
    temperature, top_k, top_p, min_p = settings
    if temperature == 0:
        return int(logits.argmax())
    kept = kept_tokens(logits, temperature, top_k or -1, top_p, min_p)
    return draw_token(logits, temperature, kept, number)


def test_draws_are_those_of_the_definition(sampling: FlashInferSampling) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        logits = rng.normal(0, 2, (len(SETTINGS), VOCAB)).astype(np.float32)
        logits[:, rng.integers(0, VOCAB, 9)] = -np.inf
        numbers = rng.random(len(SETTINGS))
        got = draw(sampling, torch.from_numpy(logits.copy()), SETTINGS, numbers)
        assert got == [expected(*row) for row in zip(logits, SETTINGS, numbers, strict=True)]


def test_the_most_likely_token_with_the_lowest_id_is_greedy(sampling: FlashInferSampling) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [7, 30]] = 3.0
    assert draw(sampling, logits, [(0.0, 0, 1.0, 0.0)], np.array([0.99])) == [7]


def test_a_row_draws_the_same_whatever_the_others_are(sampling: FlashInferSampling) -> None:
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.normal(0, 2, (len(SETTINGS), VOCAB)).astype(np.float32))
    numbers = rng.random(len(SETTINGS))
    together = draw(sampling, logits, SETTINGS, numbers)
    alone = [
        draw(sampling, logits[i : i + 1], SETTINGS[i : i + 1], numbers[i : i + 1])[0] for i in range(len(SETTINGS))
    ]
    assert together == alone


def test_masks_are_applied_by_the_others(sampling: FlashInferSampling) -> None:
    logits = torch.ones(2, 40)
    sampling.apply_masks(logits, torch.tensor([[0b100, 0]], dtype=torch.int32))
    assert torch.isfinite(logits).sum(1).tolist() == [1, 40]


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(
        UnsupportedError, match=r"sampling_backend='flashinfer'.*sglang-lite\[cuda\].*sampling_backend='auto'"
    ):
        FlashInferSampling(TorchSampling())
