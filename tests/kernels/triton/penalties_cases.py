"""Run with TRITON_INTERPRET=1: penalties and biases against their definition, bit for bit."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference import penalties as reference
from sglang_lite.kernels.triton.penalties import BLOCK, PROGRAMS, add_bias, apply


def lists(random: np.random.Generator, vocab: int, lens: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(starts, ids, counts)."""
    ids = np.concatenate([random.permutation(vocab)[:size] for size in lens]).astype(np.int64)
    counts = random.integers(0, 4, len(ids)).astype(np.int32)
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32), ids, counts


def check_penalties() -> None:
    vocab = PROGRAMS * BLOCK + 700
    for lens in ([], [0], [1], [vocab], [BLOCK, BLOCK + 1, 0], [3, PROGRAMS * BLOCK + 1, 40]):
        random = np.random.default_rng(len(lens))
        logits = (random.standard_normal((len(lens) + 2, vocab)) * 5).astype(np.float32)
        logits[0, :4] = (0.0, -0.0, 3e38, -3e38)
        starts, ids, counts = (
            lists(random, vocab, lens)
            if lens
            else (np.zeros(1, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32))
        )
        rows = random.permutation(len(logits))[: len(lens)].astype(np.int64)
        repetition = random.uniform(0.5, 2, len(lens)).astype(np.float32)
        frequency, presence = random.uniform(-2, 2, (2, len(lens))).astype(np.float32)
        changed, expected = torch.from_numpy(logits.copy()), logits.copy()
        tensors = (torch.from_numpy(a.copy()) for a in (rows, starts, ids, counts, repetition, frequency, presence))
        apply(changed, *tensors)
        for i, row in enumerate(rows):
            part = slice(starts[i], starts[i + 1])
            seen = zip(ids[part].tolist(), counts[part].tolist(), strict=True)
            reference.penalize(expected[row], seen, float(repetition[i]), float(frequency[i]), float(presence[i]))
        np.testing.assert_array_equal(changed.numpy(), expected)


def check_prompt_tokens_are_only_repeated() -> None:
    row = torch.tensor([[2.0, 2.0, -2.0, 7.0]])
    one = torch.ones(1)
    seen = torch.tensor([0, 1, 2]), torch.tensor([0, 2, 0], dtype=torch.int32)
    apply(row, torch.tensor([0]), torch.tensor([0, 3], dtype=torch.int32), *seen, 2 * one, 0.5 * one, 0.25 * one)
    assert row.tolist() == [[1.0, 1.0 - 2 * 0.5 - 0.25, -4.0, 7.0]]


def check_bias() -> None:
    for lens in ([0], [1], [BLOCK + 1, 0, 7]):
        random = np.random.default_rng(len(lens))
        logits = random.standard_normal((4, 2 * BLOCK)).astype(np.float32)
        starts, ids, _ = lists(random, 2 * BLOCK, lens)
        rows = np.arange(len(lens), dtype=np.int64)[::-1].copy()
        biases = (random.standard_normal(len(ids)) * 100).astype(np.float32)
        changed, expected = torch.from_numpy(logits.copy()), logits.copy()
        add_bias(changed, *(torch.from_numpy(array) for array in (rows, starts, ids, biases)))
        for i, row in enumerate(rows):
            part = slice(starts[i], starts[i + 1])
            reference.add_bias(expected[row], zip(ids[part].tolist(), biases[part].tolist(), strict=True))
        np.testing.assert_array_equal(changed.numpy(), expected)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            with np.errstate(over="ignore"):
                check()
            print(name)
