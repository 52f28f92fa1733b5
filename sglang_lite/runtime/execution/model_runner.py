"""Runs a plan on a model: copies, one forward, the head where it is needed, then the rows' answers.

Knows no queue and no page owner. One thread uses a runner at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.answers import StepAnswers
from sglang_lite.runtime.execution.batch_builder import concat_input_ids, find_rows_outside, forward_batch_of_ids
from sglang_lite.runtime.execution.sampler import Sampler
from sglang_lite.runtime.scheduler.plan import Plan, RowPlan, StepResult

HEAD_ROWS = 256
"""Rows of logits that exist at a time: 256 rows of 49,152 float32 are 48 MiB."""


class CausalModel(Protocol):
    """What the runner asks of a model."""

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Hidden states `[T, H]` that `logits` takes; calls `attention.plan(fb)`, writes the KV of all T tokens."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, `[n, H]` to `[n, V]`."""
        ...


@runtime_checkable
class FewLogits(Protocol):
    """A model that gives scores of some tokens without those of all others, on the CPU."""

    def logits_of(self, hidden: torch.Tensor, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Of each row of `[n, H]` the scores of the tokens `ids[i]`, the same to the bit as among all."""
        ...


@dataclass(slots=True)
class RunnerCounters:
    """How much was computed since the start: tokens whose KV was computed, rows of logits, rows with some of them, tokens drawn."""

    steps: int = 0
    tokens: int = 0
    head_rows: int = 0
    few_head_rows: int = 0
    sampled: int = 0


class ModelRunner:
    """Plans in, results out.

    `vocab_size`: the width of the model's head. `eos_ids`: as for `Sampler`. `head_rows`: see `HEAD_ROWS`.
    """

    def __init__(
        self,
        model: CausalModel,
        attention_backend: AttentionBackend,
        kv_pool: KvPool,
        *,
        vocab_size: int,
        eos_ids: Iterable[int] = (),
        device: str = "cpu",
        head_rows: int = HEAD_ROWS,
    ) -> None:
        self._model = model
        self._attention = attention_backend
        self._kv_pool = kv_pool
        self._vocab_size = vocab_size
        self._sampler = Sampler(vocab_size, eos_ids)
        self._device = device
        self._head_rows = head_rows
        self._few_head = model if isinstance(model, FewLogits) else None
        self.counters = RunnerCounters()

    def run(self, plan: Plan) -> StepResult:
        """Do the copies of `plan`, then compute its rows, whose KV is in the pool when this returns.

        A row whose ids, logits or constraint are bad gets a result with `error`; no other row notices.
        """
        self._kv_pool.copy_slots([(copy.src, copy.dst, copy.num_tokens) for copy in plan.copies])
        if not plan.rows:
            return StepResult(plan.step, ())
        input_ids, extend_lens = concat_input_ids(plan.rows)
        few_head = self._few_head
        answers = StepAnswers(plan.rows, extend_lens, self._sampler, takes_few=few_head is not None)
        for i, error in find_bad_rows(plan.rows, input_ids, extend_lens, self._vocab_size).items():
            answers.fail(i, error)
        with torch.inference_mode():
            fb = forward_batch_of_ids(plan.rows, input_ids, extend_lens, self._kv_pool.page_size, self._device)
            hidden = self._model.forward(fb, self._attention)
            if few_head is not None and len(answers.few_tokens):
                rows = hidden.index_select(0, torch.from_numpy(answers.few_tokens))
                answers.take_few(few_head.logits_of(rows, answers.few_ids))
            for start in range(0, len(answers.tokens), self._head_rows):
                tokens = answers.tokens[start : start + self._head_rows]
                answers.take(tokens, self._logits(hidden, tokens))
        result = answers.to_step_result(plan.step)
        self._count(len(input_ids), answers)
        return result

    def _logits(self, hidden: torch.Tensor, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = hidden.index_select(0, torch.from_numpy(tokens).to(hidden.device))
        logits = self._model.logits(rows).float().cpu().numpy()
        assert logits.shape == (len(tokens), self._vocab_size), (
            f"the head gave logits of shape {logits.shape}, expected {(len(tokens), self._vocab_size)}"
        )
        return logits

    def _count(self, num_tokens: int, answers: StepAnswers) -> None:
        self.counters.steps += 1
        self.counters.tokens += num_tokens
        self.counters.head_rows += len(answers.tokens)
        self.counters.few_head_rows += len(answers.few_tokens)
        self.counters.sampled += answers.num_sampled


def find_bad_rows(
    rows: Sequence[RowPlan], input_ids: NDArray[np.int64], extend_lens: NDArray[np.int64], vocab_size: int
) -> dict[int, ExecutionError]:
    """Errors of the rows with ids that the embedding does not have; `input_ids` gets a 0 in the place of each such id."""
    errors: dict[int, ExecutionError] = {}
    for i in np.flatnonzero(find_rows_outside(input_ids, extend_lens, vocab_size)).tolist():
        bad = next(token for token in rows[i].input_ids if not 0 <= token < vocab_size)
        errors[i] = ExecutionError(
            f"computing tokens {rows[i].prefix_len} to {rows[i].seq_len - 1} of request {rows[i].rid}: "
            f"got token id {bad}, expected ids from 0 to {vocab_size - 1}; encode with the model's tokenizer"
        )
    input_ids[(input_ids < 0) | (input_ids >= vocab_size)] = 0
    return errors
