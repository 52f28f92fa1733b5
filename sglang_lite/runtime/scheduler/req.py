"""Req: the ledger of one request over its whole life; it knows no queue and moves no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.memory.kv import KvHold
from sglang_lite.runtime.scheduler.finish import OutputText
from sglang_lite.runtime.scheduler.jump import JumpState
from sglang_lite.runtime.scheduler.messages import AddReq, FinishReason, GrammarCursor, TokenLogprob, Usage
from sglang_lite.runtime.scheduler.score import ScoreState


class ReqState(Enum):
    """Where a request is; derived from what it holds, see `Req`."""

    WAITING_FOR_GRAMMAR = "waiting_for_grammar"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    SCORING = "scoring"
    FINISHED = "finished"


@dataclass(slots=True)
class ReqCounts:
    """What a request cost.

    `cached_tokens`: found at its first admission; None before. `computed_tokens`: of its prompt, recomputation included.
    `evicted_pages`: pages of the cache that were given up for what it has held and let go of. `known_len`: at its end, how many
    of its leading tokens had KV.
    """

    cached_tokens: int | None = None
    computed_tokens: int = 0
    retractions: int = 0
    evicted_pages: int = 0
    known_len: int = 0


class Req:
    """One request.

    States and what moves between them::

        WAITING_FOR_GRAMMAR --grammar ready--> WAITING --admitted--> PREFILLING --last chunk--> RUNNING --end--> FINISHED
               |                                 ^   |                 |     |                  |
               |                                 |   |                 |     +-----> SCORING ---+---edges done--> FINISHED
               |                                 +---|--- retracted ---+------------------------+
               +------- failed, aborted -------------+--- aborted, failed, prefill only, or one-token choices --> FINISHED

    Cursors, never merged: `output_ids` (committed tokens), `hold.committed_len` (KV known to be computed), `planned_len`
    (KV of rows in flight included), `hold.allocated_len` (pages granted), `sent_tokens` and `text.text_end` (delivered).

    Attributes:
        order: (step of arrival, not continuing, number of arrival): the order of first come first served.
        rank: smaller goes first, by its priority.
        deadline: when the queue's clock shows this, it goes before all that have not aged.
        hold: what it holds of the memory; None exactly while waiting or finished.
        planned_len: KV that is computed or will be by the rows in flight; `hold.committed_len` where none is.
        num_pending: output tokens that rows in flight will give.
        fill_len: tokens known when it was admitted; up to there it is prefilling.
        input_logprobs: of the prompt positions from `logprob.start_len` on, as far as they are computed.
        num_drafted: guessed tokens in the row in flight; they are among `num_pending` and `planned_len`, which are upper
            bounds while it is not 0.
        jump: how it treats forced tokens.
        score: the choices and their scores so far; None: a generation.
        counts: what it cost until now.
        end_reason: the request is to end so at the next commit, whatever its row in flight gives.

    """

    def __init__(
        self,
        add: AddReq,
        order: tuple[int, bool, int],
        text: OutputText,
        score: ScoreState | None,
        rank: int = 0,
        jump: JumpState | None = None,
    ) -> None:
        self.rid = add.rid
        self.add = add
        self.order = order
        self.rank = rank
        self.deadline = 0
        self.grammar: GrammarCursor | None = add.grammar
        self.waits_for_grammar = add.waits_for_grammar and add.grammar is None
        self.output_ids: list[int] = []
        self.text = text
        self.score = score
        self.hold: KvHold | None = None
        self.fill_len = 0
        self.planned_len = 0
        self.num_pending = 0
        self.num_drafted = 0
        self.jump = jump or JumpState("off")
        self.sent_tokens = 0
        self.input_logprobs: list[TokenLogprob] = []
        self.has_sent_input_logprobs = False
        self.end_reason: FinishReason | None = None
        self.finished_reason: FinishReason | None = None
        self.counts = ReqCounts()
        self._ids = np.array(add.input_ids, dtype=np.int32)
        self._num_ids = len(self._ids)
        self._page_keys: list[int] = []

    @property
    def state(self) -> ReqState:
        """Where the request is, from what it holds."""
        if self.finished_reason is not None:
            return ReqState.FINISHED
        if self.waits_for_grammar:
            return ReqState.WAITING_FOR_GRAMMAR
        if self.hold is None:
            return ReqState.WAITING
        if self.hold.committed_len < self.fill_len:
            return ReqState.PREFILLING
        return ReqState.RUNNING if self.score is None else ReqState.SCORING

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.add.input_ids)

    @property
    def seq_len(self) -> int:
        """Known tokens: prompt and output."""
        return self._num_ids

    @property
    def known_len(self) -> int:
        """Tokens once the rows in flight are committed, if they do not end it."""
        return self._num_ids + self.num_pending

    @property
    def ids(self) -> NDArray[np.int32]:
        """int32 [seq_len], prompt and output; a view, valid until the next token."""
        return self._ids[: self._num_ids]

    @property
    def params(self) -> SamplingParams:
        """How it samples."""
        return self.add.sampling

    @property
    def logprob(self) -> LogprobParams | None:
        """Which log-probabilities it returns."""
        return self.add.logprob

    @property
    def place(self) -> tuple[int, ...]:
        """Where its branch stands in a depth-first walk of the programs."""
        return self.add.place

    @property
    def samples(self) -> bool:
        """A token is drawn after its last prompt token."""
        return self.score is None and self.text.rules.max_new_tokens > 0

    @property
    def tokens_left(self) -> int:
        """Output tokens that it may still give, at most."""
        return max(self.text.rules.max_new_tokens - len(self.output_ids), 0) if self.score is None else 0

    @property
    def match_limit(self) -> int:
        """How many leading tokens may come from the cache: those after them must be computed for what they give.

        The last token always (its distribution is wanted), and everything from one before the first prompt position
        whose log-probability is still missing.
        """
        limit = self.seq_len - 1
        missing = self.next_input_logprob
        return limit if missing is None else min(limit, max(missing - 1, 0))

    @property
    def next_input_logprob(self) -> int | None:
        """The first prompt position whose log-probability is wanted and missing."""
        start = self.logprob.start_len if self.logprob is not None else None
        if start is None or start + len(self.input_logprobs) >= self.prompt_len:
            return None
        return start + len(self.input_logprobs)

    @property
    def owes_input_logprobs(self) -> bool:
        """The prompt's log-probabilities are asked for, complete, and not sent yet."""
        wanted = self.logprob
        if wanted is None or wanted.start_len is None or self.has_sent_input_logprobs:
            return False
        return self.next_input_logprob is None

    def append(self, token_ids: Sequence[int]) -> None:
        """Commit output tokens."""
        need = self._num_ids + len(token_ids)
        if need > len(self._ids):
            grown = np.zeros(max(need, 2 * len(self._ids), 16), dtype=np.int32)
            grown[: self._num_ids] = self.ids
            self._ids = grown
        self._ids[self._num_ids : need] = token_ids
        self._num_ids = need
        self.output_ids.extend(token_ids)

    def page_keys(self, page_size: int) -> list[int]:
        """One number for each leading whole page; equal numbers: equal namespace and tokens up to there."""
        keys = self._page_keys
        if len(keys) < self._num_ids // page_size:
            data, width = self.ids.tobytes(), page_size * self._ids.itemsize
            key = keys[-1] if keys else hash(self.add.namespace)
            for start in range(len(keys) * width, len(data) - width + 1, width):
                key = hash((key, data[start : start + width]))
                keys.append(key)
        return keys

    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage(
            prompt_tokens=self.prompt_len,
            cached_tokens=self.counts.cached_tokens or 0,
            computed_tokens=self.counts.computed_tokens,
            completion_tokens=len(self.output_ids),
            forced_tokens=self.jump.num_kept,
            retractions=self.counts.retractions,
            evicted_pages=self.counts.evicted_pages,
            known_len=self.counts.known_len,
        )
