"""A runner with a draft model beside it, which guesses the tokens that come after those drawn; knows no scheduler.

The guesses come back with a step's results. Whether they are tried, and which of them stand, is decided elsewhere: what a
request gives does not depend on them. Source: Y. Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding" (2023); here a guess stands where the target draws the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.batch_builder import concat_input_ids, forward_batch_of_ids
from sglang_lite.runtime.execution.draft_rows import row_after, rows_behind
from sglang_lite.runtime.execution.model_runner import HEAD_ROWS, CausalModel, RunnerCounters
from sglang_lite.runtime.execution.threaded_runner import CountingRunner
from sglang_lite.runtime.scheduler.plan import Plan, RowPlan, StepResult


@dataclass(slots=True)
class DraftCounters:
    """What the draft model did since the start: forwards, tokens whose KV was computed, tokens guessed."""

    forwards: int = 0
    tokens: int = 0
    guesses: int = 0


class DraftRunner:
    """A `Runner` over the target's.

    `target`: computes plans. `model`, `attention_backend`, `kv_pool`: of the draft model, whose pool has the pages of the
    target's. `draft_vocab_size`: the width of its head. `vocab_size`: the target's; no other tokens are guessed.
    """

    def __init__(
        self,
        target: CountingRunner,
        model: CausalModel,
        attention_backend: AttentionBackend,
        kv_pool: KvPool,
        *,
        draft_vocab_size: int,
        vocab_size: int,
        device: str = "cpu",
    ) -> None:
        self.target = target
        self.draft_counters = DraftCounters()
        self._model = model
        self._attention = attention_backend
        self._kv_pool = kv_pool
        self._draft_vocab_size = draft_vocab_size
        self._vocab_size = vocab_size
        self._device = device

    @property
    def counters(self) -> RunnerCounters:
        """What the target computed since the start."""
        return self.target.counters

    def run(self, plan: Plan) -> StepResult:
        """The target's result with guesses for the rows that want some; the draft model's KV is in its pool, too."""
        result = self.target.run(plan)
        self._kv_pool.copy_slots([(copy.src, copy.dst, copy.num_tokens) for copy in plan.copies])
        if not plan.rows:
            return result
        with torch.inference_mode():
            guesses = self._guess(rows_behind(plan.rows, result.rows, self._kv_pool.page_size))
        rows = (got._replace(guesses=tuple(guesses.get(i, ()))) for i, got in enumerate(result.rows))
        return StepResult(result.step, tuple(rows))

    def _guess(self, rows: dict[int, RowPlan]) -> dict[int, list[int]]:
        """Compute the rows and go on from those that want it, all of them together a token at a time; guesses by row."""
        guesses: dict[int, list[int]] = {number: [] for number, row in rows.items() if row.num_guesses}
        while rows:
            numbers = list(rows)
            wanted = [i for i, number in enumerate(numbers) if rows[number].num_guesses]
            tokens = self._forward(list(rows.values()), wanted)
            drawn = {numbers[i]: token for i, token in zip(wanted, tokens, strict=True)}
            for number, token in drawn.items():
                guesses[number].append(token)
            rows = {n: row_after(rows[n], token) for n, token in drawn.items() if rows[n].num_guesses > 1}
        self.draft_counters.guesses += sum(map(len, guesses.values()))
        return guesses

    def _forward(self, rows: Sequence[RowPlan], wanted: Sequence[int]) -> list[int]:
        """Compute all rows; the most likely token behind each of those that are wanted."""
        input_ids, extend_lens = concat_input_ids(rows)
        # Tokens that only the target has, and such as no model has, which fail there.
        input_ids[(input_ids < 0) | (input_ids >= self._draft_vocab_size)] = 0
        fb = forward_batch_of_ids(rows, input_ids, extend_lens, self._kv_pool.page_size, self._device)
        hidden = self._model.forward(fb, self._attention)
        self.draft_counters.forwards += 1
        self.draft_counters.tokens += len(input_ids)
        ends: NDArray[np.int64] = (np.cumsum(extend_lens) - 1)[list(wanted)] if wanted else np.zeros(0, dtype=np.int64)
        tokens: list[int] = []
        for start in range(0, len(ends), HEAD_ROWS):
            part = hidden.index_select(0, torch.from_numpy(ends[start : start + HEAD_ROWS]).to(hidden.device))
            tokens += self._model.logits(part)[:, : self._vocab_size].argmax(dim=-1).tolist()
        return tokens
