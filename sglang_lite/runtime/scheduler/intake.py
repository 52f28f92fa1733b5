"""The door: a message becomes a Req, or an error that is its one answer; nothing is started here."""

from __future__ import annotations

import re

from sglang_lite.errors import ContextLengthError, RequestError
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.draft_guesses import DraftGuesser
from sglang_lite.runtime.scheduler.finish import FinishRules, OutputText
from sglang_lite.runtime.scheduler.jump import Guesser, JumpState
from sglang_lite.runtime.scheduler.messages import AddReq, VisibleBytes
from sglang_lite.runtime.scheduler.ngram import NgramGuesser
from sglang_lite.runtime.scheduler.req import Req
from sglang_lite.runtime.scheduler.score import ScoreState, ScoreTree

_LAST_RANK = 1 << 62


class Intake:
    """Checks requests against the context, the vocabulary and the whole KV pool."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, visible: VisibleBytes) -> None:
        self._config = config
        self._kv = kv
        self._visible = visible

    def open(self, add: AddReq, order: tuple[int, bool, int]) -> Req:
        """The request's ledger.

        Raises:
            ContextLengthError: prompt, choices and one new token are more than the context or the pool ever holds.
            RequestError: no tokens, tokens outside the vocabulary, a stop string or pattern that is none, a wrong priority.
        """
        what = f"adding request {add.rid!r}"
        self._check_ids(what, add)
        config = self._config
        rules = FinishRules.of(
            add.sampling,
            prompt_len=len(add.input_ids),
            context_length=config.context_length,
            eos_ids=config.eos_ids,
            vocab_size=config.vocab_size,
        )
        longest = max(map(len, add.choices)) if add.choices else int(add.sampling.max_new_tokens != 0)
        self._check_context(what, len(add.input_ids), longest)
        score = ScoreState(add.choices, config.chunked_prefill_size) if add.choices is not None else None
        self._check_pool(what, len(add.input_ids), score.tree if score else None)
        try:
            text = OutputText(add.sampling, rules, self._visible)
        except re.error as error:
            raise RequestError(f"{what}: stop_regex {error.pattern!r} is no regular expression: {error}") from error
        except UnicodeEncodeError as error:
            raise RequestError(f"{what}: stop {error.object!r} is no text: {error}; expected Unicode text") from error
        jump = JumpState(add.sampling.jump_forward or config.jump_forward, self._guesser(add))
        return Req(add, order, text, score, self._rank(what, add.priority), jump)

    def _guesser(self, add: AddReq) -> Guesser | None:
        """A draft model guesses for everybody, earlier text only where no constraint holds."""
        config = self._config
        if config.num_draft_tokens:
            return DraftGuesser(config.num_draft_tokens)
        speculates = config.num_ngram_tokens and add.grammar is None and not add.waits_for_grammar
        return NgramGuesser(config.num_ngram_tokens) if speculates else None

    def _rank(self, what: str, priority: int | None) -> int:
        """Requests without a priority come last, as with SGLang."""
        if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):  # pyright: ignore[reportUnnecessaryIsInstance] - a client's value
            raise RequestError(f"{what}: got priority {priority!r}, expected a whole number or None")
        if not self._config.uses_priority:
            if priority is not None:
                raise RequestError(
                    f"{what}: got priority {priority}, but priorities are off; set enable_priority_scheduling=True"
                )
            return 0
        if priority is None:
            return _LAST_RANK
        if abs(priority) >= _LAST_RANK:
            raise RequestError(f"{what}: got priority {priority}, expected a number between -2**62 and 2**62")
        return priority if self._config.schedule_low_priority_values_first else -priority

    def _check_ids(self, what: str, add: AddReq) -> None:
        if not add.input_ids:
            raise RequestError(f"{what}: got no input ids, expected at least one token")
        if add.choices is not None and not (add.choices and all(add.choices)):
            raise RequestError(
                f"{what}: got choices {add.choices!r}, expected at least one, each of at least one token"
            )
        for ids in (add.input_ids, *(add.choices or ())):
            if min(ids) < 0 or max(ids) >= self._config.vocab_size:
                wrong = next(i for i in ids if not 0 <= i < self._config.vocab_size)
                raise RequestError(f"{what}: got token id {wrong}, expected 0 to {self._config.vocab_size - 1}")
        start = add.logprob.start_len if add.logprob is not None else None
        if start is not None and start < 0:
            raise RequestError(f"{what}: got a first log-probability at {start}, expected a prompt position or None")

    def _check_context(self, what: str, prompt_len: int, longest: int) -> None:
        if prompt_len + longest > self._config.context_length:
            raise ContextLengthError(
                f"{what}: got {prompt_len} prompt tokens and at least {longest} after them, the context holds "
                f"{self._config.context_length}; shorten the prompt"
            )

    def _check_pool(self, what: str, prompt_len: int, tree: ScoreTree | None) -> None:
        page, total = self._kv.page_size, self._kv.total_tokens
        pages, rows = -(-prompt_len // page), 1
        if tree is not None and tree.edges:
            below: dict[int | None, tuple[int, int]] = {None: (0, 0)}
            for index, edge in enumerate(tree.edges):
                above_pages, above_rows = below[edge.parent]
                start, end = prompt_len + edge.start, prompt_len + edge.start + edge.row_len
                own = -(-end // page) - start // page if edge.row_len else 0
                below[index] = (above_pages + own, above_rows + bool(edge.row_len))
            pages += max(p for p, _ in below.values())
            rows += max(r for _, r in below.values())
        if pages * page > total or rows > self._kv.num_rows:
            raise ContextLengthError(
                f"{what}: got {prompt_len} prompt tokens that need {pages * page} KV slots and {rows} rows at once, the "
                f"whole pool has {total} slots and {self._kv.num_rows} rows; shorten the prompt or enlarge the pool"
            )
