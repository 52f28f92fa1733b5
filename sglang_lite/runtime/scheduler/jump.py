"""Jump-forward of one request: which forced tokens are tried in its next row, and what became of them; knows no batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.sampling_params import JumpForward

FIRST_GUESSED = 4
MAX_GUESSED = 16
"""Forced tokens of one row in mode `verify`, at first and at most: a longer run goes on in the next row."""
MAX_GIVEN = 128
"""The same in mode `force`."""
MAX_WAIT = 64
"""The longest pause, in tokens, after runs that were not kept."""

_CONTEXT = 4  # as many tokens before a run as its spelling depends on


class Guesser(Protocol):
    """What guesses a request's next tokens where no constraint forces them."""

    def next_run(self, ids: NDArray[np.int32]) -> list[int]:
        """The tokens to try after `ids`, the request's prompt and output; asked once for each row."""
        ...

    def note(self, num_guessed: int, num_kept: int) -> None:
        """A row with `num_guessed` guesses came back; the first `num_kept` stand."""
        ...


class JumpState:
    """How a request treats forced tokens, and the counts.

    In mode `verify` each guess makes its row a little dearer, so a request whose choices differ must not be slowed: after a
    run that stood as a whole, twice as many tokens are tried, up to `MAX_GUESSED`; after one that did not, as many as
    stood; after one of which nothing stood, 1, 2, 4, ... `MAX_WAIT` tokens are drawn alone first, until one stands again.
    Nothing depends on it but time.

    Attributes:
        mode: see `SamplingParams.jump_forward`.
        guesser: what guesses where no constraint does; None: nothing.
        is_guess: the run tried last came from the guesser: nothing of it is sure.
        num_kept: forced tokens in the output.
        num_rejected: forced tokens that were computed and did not stand.
        is_due: tokens to try are known that follow the one in flight. A row that is launched before that one is known
            cannot carry them, so the next row waits for it.

    """

    def __init__(self, mode: JumpForward, guesser: Guesser | None = None) -> None:
        self.mode: JumpForward = mode
        self.guesser = guesser
        self.is_guess = False
        self.num_kept = 0
        self.num_rejected = 0
        self.is_due = False
        self._limit = FIRST_GUESSED
        self._failures = 0
        self._wait = 0

    @property
    def is_given(self) -> bool:
        """Forced tokens are taken, whatever the model says."""
        return self.mode == "force"

    def run_after(self, ids: NDArray[np.int32], grammar: GrammarCursor | None, prompt_ids: Sequence[int]) -> list[int]:
        """The tokens to try after `ids`: forced ones, or where none are, guesses; asked once for each row."""
        run = self.next_run(grammar, prompt_ids)
        self.is_guess = not run and self.guesser is not None
        return self.guesser.next_run(ids) if self.is_guess and self.guesser is not None else run

    def next_run(self, grammar: GrammarCursor | None, prompt_ids: Sequence[int]) -> list[int]:
        """The forced tokens to try now; asked once for each row."""
        if self.mode == "off" or grammar is None:
            return []
        if self._wait:
            self._wait -= 1
            return []
        run = _forced(grammar, prompt_ids)
        return run[: MAX_GIVEN if self.is_given else self._limit]

    def given_run(self, grammar: GrammarCursor | None, prompt_ids: Sequence[int]) -> list[int]:
        """As `next_run`, where only tokens that are sure to be taken count."""
        return self.next_run(grammar, prompt_ids) if self.is_given else []

    def closing_run(
        self, grammar: GrammarCursor | None, prompt_ids: Sequence[int], tokens_left: int, vocab_size: int
    ) -> list[int]:
        """The forced tokens up to the request's end, where they reach it and are sure to be taken; [] where not.

        They need not be computed: whatever the model would say, they are its output. In mode `verify` they are sure where each
        of them is the only legal token.
        """
        if self.mode == "off" or grammar is None or tokens_left <= 0:
            return []
        run = _forced(grammar, prompt_ids)[:tokens_left]
        if not run:
            return []
        twin = grammar.fork()
        try:
            for token in run:
                if not self.is_given and not _is_only_one(twin, token, vocab_size):
                    return []
                twin.accept_token(token)
            return run if len(run) == tokens_left or twin.has_only_end else []
        except ValueError:  # its tables passed their limit; the request learns of it when it draws its next token
            return []

    def note(self, num_guessed: int, num_kept: int) -> None:
        """A row with `num_guessed` guesses came back; the first `num_kept` stand."""
        self.num_rejected += num_guessed - num_kept
        if num_kept == num_guessed:
            self._limit = min(max(self._limit, 2 * num_guessed), MAX_GUESSED)
        else:
            self._limit = max(num_kept, 1)
        if num_kept:
            self._failures = 0
        else:
            self._wait = min(1 << self._failures, MAX_WAIT)
            self._failures += 1


def _forced(grammar: GrammarCursor, prompt_ids: Sequence[int]) -> list[int]:
    """What must come next; [] also where the grammar's tables pass their limit: the request's next mask tells it."""
    try:
        return grammar.jump_forward(prompt_ids[-_CONTEXT:])
    except ValueError:
        return []


def _is_only_one(grammar: GrammarCursor, token: int, vocab_size: int) -> bool:
    """`token` is legal, and no other one."""
    mask = np.zeros((1, -(-vocab_size // 32)), dtype=np.int32)
    grammar.fill_bitmask(mask)
    words = mask.view(np.uint32)[0]
    return int(words[token // 32]) == 1 << token % 32 and int(np.count_nonzero(words)) == 1
