"""Log-probabilities of single rows against torch's log_softmax in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.execution.logprobs import LogprobRow
from sglang_lite.runtime.scheduler.plan import LogprobTarget

LOGITS = (np.random.default_rng(5).standard_normal(49_152) * 4).astype(np.float32)


def expected(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).double().log_softmax(dim=-1).numpy()


def test_log_probabilities_are_the_log_softmax_of_the_raw_logits() -> None:
    ids = [0, 17, 49_151, 17]
    found = LogprobRow.from_logits(LOGITS, "x").of(ids, "x")
    assert found == pytest.approx(expected(LOGITS)[ids], abs=1e-6)


def test_the_most_likely_tokens_come_best_first_and_lower_id_first_on_ties() -> None:
    logits = np.array([1.0, 3.0, 2.0, 3.0], dtype=np.float32)
    top = LogprobRow.from_logits(logits, "x").top(3)
    assert [token for token, _ in top] == [1, 3, 2]
    assert [value for _, value in top] == pytest.approx(expected(logits)[[1, 3, 2]], abs=1e-6)


def test_more_top_tokens_than_there_are_means_all_and_none_means_none() -> None:
    one = LogprobRow.from_logits(np.zeros(3, dtype=np.float32), "x")
    assert [token for token, _ in one.top(20)] == [0, 1, 2]
    assert one.top(0) == ()


def test_a_target_is_answered_with_values_and_top() -> None:
    answer = LogprobRow.from_logits(LOGITS, "x").answer(LogprobTarget(query=0, token_ids=(5, 6), top_num=2), "x")
    assert answer.logprobs == pytest.approx(expected(LOGITS)[[5, 6]], abs=1e-6)
    assert [token for token, _ in answer.top] == np.argsort(-LOGITS, kind="stable")[:2].tolist()


def test_extreme_logits_keep_finite_values() -> None:
    row = LogprobRow.from_logits(np.array([3e38, -3e38, 3e38], dtype=np.float32), "x")
    assert row.of([0, 2], "x") == pytest.approx([-np.log(2)] * 2)
    assert np.isfinite(row.of([1], "x")).all()


def test_damaged_logits_and_unknown_tokens_are_errors_that_say_where() -> None:
    with pytest.raises(ExecutionError, match="scoring r1: the model gave NaN"):
        LogprobRow.from_logits(np.array([0.0, np.nan], dtype=np.float32), "scoring r1")
    with pytest.raises(ExecutionError, match="scoring r1: asked for token 2, expected ids from 0 to 1"):
        LogprobRow.from_logits(np.zeros(2, dtype=np.float32), "scoring r1").of([0, 2], "scoring r1")
