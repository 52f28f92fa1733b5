"""What the rows of one plan want of the model's head, and what they got; knows no model and no KV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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

About: TypeAlias = tuple[float | None, tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]
"""Of a drawn token: its log-probability, the most likely ones and those asked for."""
NOTHING: About = (None, (), ())

Outcome: TypeAlias = TargetResult | tuple[int, About] | ExecutionError
"""The answer to one wish: about a target, a token with what was asked about it, or why there is none."""


@dataclass(slots=True)
class RowAnswer:
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

    @staticmethod
    def of(row: RowPlan) -> RowAnswer:
        """What is sure before anything is computed."""
        return RowAnswer([None] * len(row.targets), _sure_drafts(row), token_id=_sure_token(row))

    def wants(self, wish: Wish) -> bool:
        """The row still needs an answer to one of its wishes."""
        return self.error is None and not (self.is_cut and wish.target is None)

    def put(self, wish: Wish, token: int, about: About) -> None:
        """The token that was drawn, and what was asked about it."""
        if token == wish.guess:
            self.kept.append(KeptDraft(token, *about))
            return
        self.token_id, (self.logprob, self.top, self.asked) = token, about
        self.is_cut = wish.guess is not None

    def settle(self, wish: Wish, outcome: Outcome) -> None:
        """The answer to one of the row's wishes, which come in order."""
        if not self.wants(wish):
            return
        if isinstance(outcome, ExecutionError):
            self.error = outcome
        elif isinstance(outcome, TargetResult):
            self.targets[wish.number] = outcome
        else:
            self.put(wish, *outcome)

    def to_result(self) -> RowResult:
        """The row's result; everything wanted has been answered or has failed."""
        if self.error is not None:
            return RowResult(error=self.error, kept=tuple(self.kept))
        targets = tuple(target for target in self.targets if target is not None)
        assert len(targets) == len(self.targets), f"{len(self.targets)} targets asked, {len(targets)} answered"
        return RowResult(self.token_id, self.logprob, self.top, self.asked, targets, None, tuple(self.kept))


class Wish(NamedTuple):
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

    `takes_few`: where only few tokens may come after a token of the batch, and nothing else is wanted of it, their logits are
    enough.

    Attributes:
        tokens: int64, ascending, without duplicates: the tokens of the batch after which all logits are wanted.
        few_tokens, few_ids: the same for those after which some are wanted, and the ids of these, in order.

    """

    def __init__(
        self, rows: Sequence[RowPlan], extend_lens: NDArray[np.int64], sampler: Sampler, *, takes_few: bool = False
    ) -> None:
        self._rows = rows
        self._sampler = sampler
        self._answers = [RowAnswer.of(row) for row in rows]
        self._wishes = find_wishes(rows, extend_lens)
        self._wish_tokens = np.fromiter((wish.token for wish in self._wishes), np.int64, len(self._wishes))
        few = self._find_few() if takes_few else {}
        self.few_tokens = np.fromiter(few, np.int64, len(few))
        self.few_ids = list(few.values())
        self._few_logits: list[NDArray[np.float32]] = []
        self.tokens = np.setdiff1d(self._wish_tokens, self.few_tokens)
        self._num_answered = 0
        self.num_sampled = 0

    def fail(self, row: int, error: ExecutionError) -> None:
        """Row `row` ends with `error`."""
        self._answers[row].error = error

    def take_few(self, logits: list[NDArray[np.float32]]) -> None:
        """The logits that `few_ids` asks for, before those of all tokens come."""
        self._few_logits = logits

    def take(self, tokens: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Answer everything that is wanted up to the last of `tokens`, the next ones of `self.tokens`; `logits` are theirs, `[n, V]`."""
        end = int(np.searchsorted(self._wish_tokens, tokens[-1], side="right"))
        self._answer_upto(end, dict(zip(tokens.tolist(), logits, strict=True)))

    def to_step_result(self, step: int) -> StepResult:
        """The results of plan `step`; everything wanted has been answered or has failed."""
        self._answer_upto(len(self._wishes), {})
        return StepResult(step, tuple(answer.to_result() for answer in self._answers))

    def _find_few(self) -> dict[int, NDArray[np.int64]]:
        """By token of the batch, the only ids whose logits are wanted after it."""
        few: dict[int, NDArray[np.int64]] = {}
        for i, wish in enumerate(self._wishes):
            spec = wish.spec
            if spec is None or spec.grammar is None or spec.given is not None or spec.logprob is not None:
                continue
            if np.count_nonzero(self._wish_tokens[max(i - 1, 0) : i + 2] == wish.token) > 1:
                continue
            if (ids := self._sampler.few_ids(spec, self._rows[wish.row].rid)) is not None:
                few[wish.token] = ids
        return few

    def _answer_upto(self, end: int, logits: Mapping[int, NDArray[np.float32]]) -> None:
        """Answer the wishes up to number `end`; guesses of a row one after the other."""
        some = dict(zip(self.few_tokens.tolist(), zip(self.few_ids, self._few_logits, strict=False), strict=False))
        for wish in self._wishes[self._num_answered : end]:
            answer = self._answers[wish.row]
            if not answer.wants(wish):
                continue
            try:
                if (few := some.get(wish.token)) is not None:
                    self._answer_few(wish, answer, *few)
                else:
                    self._answer(wish, answer, logits[wish.token])
            except ExecutionError as error:
                answer.error = error
        self._num_answered = end

    def _answer_few(self, wish: Wish, answer: RowAnswer, ids: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        assert wish.spec is not None, f"row {self._rows[wish.row].rid} wants no token"
        self.num_sampled += 1
        answer.put(wish, self._sampler.sample_among(logits, ids, wish.spec, self._rows[wish.row].rid), NOTHING)

    def _answer(self, wish: Wish, answer: RowAnswer, logits: NDArray[np.float32]) -> None:
        row = self._rows[wish.row]
        if wish.target is not None:
            where = f"scoring token {row.prefix_len + wish.target.query + 1} of request {row.rid}"
            answer.targets[wish.number] = LogprobRow.from_logits(logits, where).answer(wish.target, where)
            return
        spec = wish.spec
        assert spec is not None, f"row {row.rid} wants no token"
        token = spec.given if spec.given is not None else self._sampler.sample(logits, spec, row.rid)
        self.num_sampled += spec.given is None
        about = NOTHING if spec.logprob is None else _logprobs(token, logits, spec, spec.logprob, row.rid)
        answer.put(wish, token, about)


def _sure_drafts(row: RowPlan) -> list[KeptDraft]:
    """Guesses that stand whatever the model says and of which nothing is asked: they need no logits."""
    return [KeptDraft(spec.given) for spec in row.drafts if spec.given is not None and spec.logprob is None]


def _sure_token(row: RowPlan) -> int | None:
    """The last token, where it is taken whatever the model says and nothing is asked about it: then it needs no logits."""
    spec = row.sample
    return None if spec is None or spec.logprob is not None else spec.given


def find_wishes(rows: Sequence[RowPlan], extend_lens: NDArray[np.int64]) -> list[Wish]:
    """All that the rows want of the head, by token of the batch, those of one row in its order."""
    starts = (np.cumsum(extend_lens) - extend_lens).tolist()
    wishes: list[Wish] = []
    for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
        for number, target in enumerate(row.targets):
            assert 0 <= target.query < row.extend_len, (
                f"row {row.rid}: target {number} asks for new token {target.query}, the row has {row.extend_len}"
            )
            wishes.append(Wish(start + target.query, i, number, target))
        first = start + row.extend_len - 1 - len(row.drafts)
        for number, spec in enumerate(row.drafts):
            if spec.given is not None and spec.logprob is None:
                continue
            wishes.append(Wish(first + number, i, -1, None, spec, row.input_ids[number - len(row.drafts)]))
        if row.sample is not None and _sure_token(row) is None:
            wishes.append(Wish(start + row.extend_len - 1, i, -1, None, row.sample))
    return sorted(wishes, key=lambda wish: wish.token)


def _logprobs(
    token_id: int, logits: NDArray[np.float32], spec: SampleSpec, asked: LogprobParams, rid: str
) -> tuple[float, tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]:
    """(log-probability, top, asked) of a drawn token."""
    where = f"reporting log-probabilities at token {spec.position} of request {rid}"
    distribution = LogprobRow.from_logits(logits, where)
    (logprob,) = distribution.of((token_id,), where)
    others = tuple(zip(asked.token_ids, distribution.of(asked.token_ids, where), strict=True))
    return logprob, distribution.top(asked.top_num), others
