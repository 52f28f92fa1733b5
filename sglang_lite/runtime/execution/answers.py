"""What the rows of one plan want of the model's head, and what they got; knows no model and no KV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.execution.logprobs import LogprobRow
from sglang_lite.runtime.execution.sampler import Sampler
from sglang_lite.runtime.scheduler.plan import (
    KeptDraft,
    LogprobTarget,
    RowPlan,
    RowResult,
    SampleSpec,
    StepResult,
    TargetResult,
)


@dataclass(slots=True)
class _Answer:
    """What one row has got so far; after an error nothing more is worked out for it."""

    targets: list[TargetResult | None]
    kept: list[KeptDraft]
    is_cut: bool = False
    """A guess did not stand: what comes after it means nothing."""
    token_id: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    asked: tuple[tuple[int, float], ...] = ()
    error: ExecutionError | None = None

    def to_result(self) -> RowResult:
        if self.error is not None:
            return RowResult(error=self.error, kept=tuple(self.kept))
        targets = tuple(target for target in self.targets if target is not None)
        assert len(targets) == len(self.targets), f"{len(self.targets)} targets asked, {len(targets)} answered"
        return RowResult(self.token_id, self.logprob, self.top, self.asked, targets, None, tuple(self.kept))


@dataclass(frozen=True, slots=True)
class _Wish:
    """Row `row` wants the distribution after token `token` of the batch: for `target` number `number`, or to draw by `spec`.

    `guess`: the token that the row has gone on with; None: its last.
    """

    token: int
    row: int
    number: int
    target: LogprobTarget | None
    spec: SampleSpec | None = None
    guess: int | None = None


class StepAnswers:
    """Collects the results of one step from rows of logits that come piece by piece.

    Attributes:
        tokens: int64, ascending, without duplicates: the tokens of the batch after which logits are wanted.

    """

    def __init__(self, rows: Sequence[RowPlan], extend_lens: NDArray[np.int64], sampler: Sampler) -> None:
        self._rows = rows
        self._sampler = sampler
        self._answers = [_Answer([None] * len(row.targets), _sure_drafts(row)) for row in rows]
        self._wishes = sorted(_wishes(rows, extend_lens), key=lambda wish: wish.token)
        self._wish_tokens = np.fromiter((wish.token for wish in self._wishes), np.int64, len(self._wishes))
        self.tokens = np.unique(self._wish_tokens)
        self.num_sampled = 0

    def fail(self, row: int, error: ExecutionError) -> None:
        """Row `row` ends with `error`."""
        self._answers[row].error = error

    def take(self, tokens: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Answer everything that is wanted after `tokens`, a run of `self.tokens`; `logits` are theirs, `[n, V]`."""
        first, last = np.searchsorted(self._wish_tokens, [tokens[0], tokens[-1] + 1])
        wishes = self._wishes[first:last]
        for wish, index in zip(wishes, np.searchsorted(tokens, self._wish_tokens[first:last]).tolist(), strict=True):
            answer = self._answers[wish.row]
            if answer.error is not None or (answer.is_cut and wish.target is None):
                continue
            try:
                self._answer(wish, answer, logits[index])
            except ExecutionError as error:
                answer.error = error

    def to_step_result(self, step: int) -> StepResult:
        """The results of plan `step`; everything wanted has been answered or has failed."""
        return StepResult(step, tuple(answer.to_result() for answer in self._answers))

    def _answer(self, wish: _Wish, answer: _Answer, logits: NDArray[np.float32]) -> None:
        row = self._rows[wish.row]
        if wish.target is not None:
            where = f"scoring token {row.prefix_len + wish.target.query + 1} of request {row.rid}"
            answer.targets[wish.number] = LogprobRow.from_logits(logits, where).answer(wish.target, where)
            return
        spec = wish.spec
        assert spec is not None, f"row {row.rid} wants no token"
        token = spec.given if spec.given is not None else self._sampler.sample(logits, spec, row.rid)
        self.num_sampled += spec.given is None
        about = (None, (), ()) if spec.logprob is None else _logprobs(token, logits, spec, spec.logprob, row.rid)
        if token == wish.guess:
            answer.kept.append(KeptDraft(token, *about))
            return
        answer.token_id, (answer.logprob, answer.top, answer.asked) = token, about
        answer.is_cut = wish.guess is not None


def _sure_drafts(row: RowPlan) -> list[KeptDraft]:
    """Guesses that stand whatever the model says and of which nothing is asked: they need no logits."""
    return [KeptDraft(spec.given) for spec in row.drafts if spec.given is not None and spec.logprob is None]


def _wishes(rows: Sequence[RowPlan], extend_lens: NDArray[np.int64]) -> list[_Wish]:
    starts = (np.cumsum(extend_lens) - extend_lens).tolist()
    wishes: list[_Wish] = []
    for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
        for number, target in enumerate(row.targets):
            assert 0 <= target.query < row.extend_len, (
                f"row {row.rid}: target {number} asks for new token {target.query}, the row has {row.extend_len}"
            )
            wishes.append(_Wish(start + target.query, i, number, target))
        first = start + row.extend_len - 1 - len(row.drafts)
        for number, spec in enumerate(row.drafts):
            if spec.given is not None and spec.logprob is None:
                continue
            wishes.append(_Wish(first + number, i, -1, None, spec, row.input_ids[number - len(row.drafts)]))
        if row.sample is not None:
            wishes.append(_Wish(start + row.extend_len - 1, i, -1, None, row.sample))
    return wishes


def _logprobs(
    token_id: int, logits: NDArray[np.float32], spec: SampleSpec, asked: LogprobParams, rid: str
) -> tuple[float, tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]:
    """(log-probability, top, asked) of a drawn token."""
    where = f"reporting log-probabilities at token {spec.position} of request {rid}"
    distribution = LogprobRow.from_logits(logits, where)
    (logprob,) = distribution.of((token_id,), where)
    others = tuple(zip(asked.token_ids, distribution.of(asked.token_ids, where), strict=True))
    return logprob, distribution.top(asked.top_num), others
