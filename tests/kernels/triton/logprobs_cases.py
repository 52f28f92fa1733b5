"""Run with TRITON_INTERPRET=1: log-probabilities against their definition."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference import logprobs as reference
from sglang_lite.kernels.triton.logprobs import SPLIT, logprobs


def check_shapes() -> None:
    for vocab in (1, 5, SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT + 100):
        for batch, pairs, tops, top_num in ((0, 0, 0, 2), (1, 0, 1, 1), (3, 5, 0, 0), (3, 130, 2, 5)):
            random = np.random.default_rng(vocab + batch)
            logits = np.round(random.standard_normal((batch, vocab)) * 8, 1).astype(np.float32)
            rows, ids = random.integers(0, max(batch, 1), pairs), random.integers(0, vocab, pairs)
            top_rows, top_num = random.integers(0, max(batch, 1), tops), min(top_num, vocab)
            tensors = [torch.from_numpy(a) for a in (logits, rows, ids, top_rows)]
            got = logprobs(tensors[0], tensors[1], tensors[2], tensors[3], top_num)
            assert [tuple(t.shape) for t in got] == [(pairs,), (tops, top_num), (tops, top_num)]
            for row, token, value in zip(rows, ids, got.values.tolist(), strict=True):
                np.testing.assert_allclose(value, reference.log_softmax(logits[row])[token], rtol=1e-6, atol=1e-6)
            for row, best, values in zip(top_rows, got.top_ids, got.top_values, strict=True):
                expected = reference.top_tokens(logits[row], top_num)
                assert best.tolist() == expected.tolist()
                of = reference.log_softmax(logits[row])[expected]
                np.testing.assert_allclose(values.numpy(), of, rtol=1e-6, atol=1e-6)


def check_ties_and_masked_tokens() -> None:
    logits = torch.full((1, SPLIT + 8), float("-inf"))
    logits[0, [3, SPLIT + 1, SPLIT + 4]] = torch.tensor([0.0, 1.0, 0.0])
    got = logprobs(logits, torch.tensor([0]), torch.tensor([9]), torch.tensor([0]), 5)
    assert got.values.tolist() == [float("-inf")]
    assert got.top_ids.tolist() == [[SPLIT + 1, 3, SPLIT + 4, 0, 1]]
    assert got.top_values[0, 3:].tolist() == [float("-inf")] * 2


def check_extremes() -> None:
    """No sum overflows: the largest logit is taken out first, in every split and over them."""
    logits = torch.tensor([[3e38, -3e38, 3e38], [-3e38, -3e38, -3e38], [80.0, 100.0, -100.0]])
    rows = torch.tensor([0, 0, 1, 2, 2])
    got = logprobs(logits, rows, torch.tensor([0, 1, 2, 1, 0]), torch.tensor([0]), 1).values.numpy()
    np.testing.assert_allclose(got, [-np.log(2), -6e38, -np.log(3), 0, -20], rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            with np.errstate(over="ignore", under="ignore"):
                check()
            print(name)
