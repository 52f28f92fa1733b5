"""One step as data: the plan that goes to a runner and the result that comes back; no torch, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.memory.hold import PageCopy
from sglang_lite.runtime.scheduler.messages import GrammarCursor


class ForwardMode(Enum):
    """What a step mostly does; every step is one varlen batch all the same."""

    EXTEND = "extend"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class LogprobTarget:
    """Wanted: log-probabilities of `token_ids` in the distribution after the row's `query`-th new token.

    `query` counts the tokens computed in this step from 0. `top_num`: the most likely tokens too.
    """

    query: int
    token_ids: tuple[int, ...]
    top_num: int = 0


class SampleSpec(NamedTuple):
    """How the row's next token is drawn, after its last new token.

    `position`: index of the drawn token in the whole sequence; with `seed` it fixes the random number. `prompt_ids`,
    `output_ids`: for penalties; read-only. `given`: the token that is taken in place of a drawn one (its
    log-probabilities are the model's).
    """

    params: SamplingParams
    seed: int
    position: int
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    grammar: GrammarCursor | None = None
    logprob: LogprobParams | None = None
    given: int | None = None


FUTURE_TOKEN = -1
"""The placeholder for a token that the step in flight has not given yet."""


class RowPlan(NamedTuple):
    """One row of the batch: compute the KV of `input_ids` at positions `prefix_len ...`.

    `is_future`: the one input token is what the request's row of the step before gives; `input_ids` has a
    placeholder until `Scheduler.resolve`. `pages`: int32, the page of each `page_size` positions from 0 to `prefix_len + len(input_ids)`. A row may read pages
    that an earlier row of the same plan writes. `sample` None: nothing is drawn (middle chunk, scoring).
    `drafts`: the last input tokens are guesses, one a spec, in order. A guess stands if its spec, drawn after the token
    before it, gives just that token. The first that does not ends the row with the token that was drawn; `sample` is for the
    token after the last guess, if all stand. `num_guesses`: how many tokens after the drawn one are worth guessing by a draft
    model; then `pages` may reach further, as far as its keys and values may. `is_dropped`: a row that was to take the token in flight, and whose request
    has ended with that one: nobody reads what it gives, or what it writes.
    """

    rid: str
    input_ids: tuple[int, ...]
    prefix_len: int
    pages: NDArray[np.int32]
    sample: SampleSpec | None = None
    targets: tuple[LogprobTarget, ...] = ()
    is_future: bool = False
    drafts: tuple[SampleSpec, ...] = ()
    num_guesses: int = 0
    is_dropped: bool = False

    @property
    def extend_len(self) -> int:
        """Tokens computed in this step."""
        return len(self.input_ids)

    @property
    def seq_len(self) -> int:
        """Tokens in the row after this step."""
        return self.prefix_len + len(self.input_ids)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one forward does. No rows: nothing to run.

    `copies`: all of them read before any of them writes, and before the forward; they write in order.
    """

    step: int
    mode: ForwardMode
    rows: tuple[RowPlan, ...]
    copies: tuple[PageCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetResult:
    """Answer to one `LogprobTarget`: `logprobs[i]` of `token_ids[i]`; `top`: (token id, log-probability), best first."""

    logprobs: tuple[float, ...]
    top: tuple[tuple[int, float], ...] = ()


class KeptDraft(NamedTuple):
    """A guess that stands, with what was asked about its token."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    asked: tuple[tuple[int, float], ...] = ()


class RowResult(NamedTuple):
    """What a row gave. `token_id` None where nothing was drawn. `error`: this row alone failed (a dead end).

    `kept`: the row's leading guesses that stand; `token_id` comes after them. `guesses`: what a draft model would go on with.
    """

    token_id: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    asked: tuple[tuple[int, float], ...] = ()
    targets: tuple[TargetResult, ...] = ()
    error: ExecutionError | None = None
    kept: tuple[KeptDraft, ...] = ()
    guesses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of plan `step`, one a row, in the plan's order."""

    step: int
    rows: tuple[RowResult, ...]
