"""Log-probabilities of tokens under one row of logits; knows no request and does not sample.

They are `log_softmax` of the model's raw logits: before penalties, bias, constraint and temperature, so that one
text has one score however it was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.execution.ranking import top_indices
from sglang_lite.runtime.scheduler.plan import LogprobTarget, TargetResult


@dataclass(frozen=True, slots=True)
class LogprobRow:
    """The distribution of one position: float32 logits `[V]`, their maximum `peak`, and `log_mass`, the logarithm of the
    sum of `exp(logits - peak)`.
    """

    logits: NDArray[np.float32]
    peak: float
    log_mass: float

    @staticmethod
    def from_logits(logits: NDArray[np.float32], where: str) -> LogprobRow:
        """Normalise one row; takes one temporary of its size.

        Args:
            logits: float32 `[V]`, kept and not changed.
            where: what is being done, for messages.

        Raises:
            ExecutionError: a logit is NaN or infinite.

        """
        if not np.isfinite(logits).all():
            raise ExecutionError(f"{where}: the model gave NaN or infinite logits; the weights or the KV are damaged")
        peak = logits.max()
        with np.errstate(over="ignore", under="ignore"):
            mass = float(np.exp(logits - peak).sum(dtype=np.float64))
        return LogprobRow(logits, float(peak), math.log(mass))

    def of(self, token_ids: Sequence[int], where: str) -> tuple[float, ...]:
        """The log-probability of each of `token_ids`, in order.

        Raises:
            ExecutionError: a token id outside the vocabulary.

        """
        ids = np.fromiter(token_ids, np.int64, len(token_ids))
        bad = ids[(ids < 0) | (ids >= len(self.logits))]
        if len(bad):
            raise ExecutionError(
                f"{where}: asked for token {int(bad[0])}, expected ids from 0 to {len(self.logits) - 1}"
            )
        return tuple(self._values(ids).tolist())

    def top(self, num: int) -> tuple[tuple[int, float], ...]:
        """The `num` most likely tokens (at most V) with their log-probabilities, best first, lower id on ties."""
        if num <= 0:
            return ()
        ids = top_indices(self.logits, num)
        return tuple(zip(ids.tolist(), self._values(ids).tolist(), strict=True))

    def answer(self, target: LogprobTarget, where: str) -> TargetResult:
        """What `target` asks for of this distribution; raises as `of`."""
        return TargetResult(self.of(target.token_ids, where), self.top(target.top_num))

    def _values(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        return self.logits[ids].astype(np.float64) - self.peak - self.log_mass
