"""A grammar of fixed places: the set of tokens allowed at each, then nothing but the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class FakeGrammar:
    """Place i allows `places[i]`; after the last only `end_id` is allowed. Counts what a matcher must never see.

    `guesses[i]`: the token that counts as forced at place i, as one spelling of several; None: nothing is forced there.
    """

    def __init__(
        self, places: Sequence[frozenset[int]], end_id: int, guesses: Sequence[int | None] | None = None
    ) -> None:
        self.places = tuple(places)
        self.end_id = end_id
        self.guesses = [None] * len(self.places) if guesses is None else list(guesses)
        self.num_accepted = 0
        self.is_terminated = False

    @property
    def allowed(self) -> frozenset[int]:
        """Tokens allowed now."""
        if self.num_accepted < len(self.places):
            return self.places[self.num_accepted]
        return frozenset({self.end_id})

    @property
    def has_only_end(self) -> bool:
        """All places are filled."""
        return self.num_accepted >= len(self.places)

    def accept_token(self, token_id: int) -> bool:
        """Take the next place's token."""
        assert not self.is_terminated, "a grammar is advanced after its end"
        if token_id not in self.allowed:
            return False
        if self.has_only_end or (token_id == self.end_id and self.num_accepted < len(self.places)):
            self.is_terminated = True
        else:
            self.num_accepted += 1
        return True

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """Bits of the allowed tokens."""
        bits = np.zeros(bitmask.shape[1] * 32, np.uint8)
        bits[list(self.allowed)] = 1
        bitmask[index] = np.packbits(bits, bitorder="little").view(np.int32)

    def fork(self) -> FakeGrammar:
        """The same grammar at the same place."""
        twin = self.restarted()
        twin.num_accepted, twin.is_terminated = self.num_accepted, self.is_terminated
        return twin

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """The guesses from here on, up to the first place without one."""
        run: list[int] = []
        for guess in self.guesses[self.num_accepted :]:
            if guess is None:
                break
            run.append(guess)
        return run

    def restarted(self) -> FakeGrammar:
        """The same grammar at its start."""
        return FakeGrammar(self.places, self.end_id, self.guesses)


class LimitedGrammar(FakeGrammar):
    """A grammar whose tables are full from place `limit` on: the parts named in `failing` raise there."""

    def __init__(
        self,
        places: Sequence[frozenset[int]],
        end_id: int,
        guesses: Sequence[int | None] | None,
        limit: int,
        failing: frozenset[str],
    ) -> None:
        super().__init__(places, end_id, guesses)
        self.limit = limit
        self.failing = failing

    @property
    def has_only_end(self) -> bool:
        """As of the grammar, below the limit."""
        self._ask("has_only_end")
        return super().has_only_end

    def accept_token(self, token_id: int) -> bool:
        """As of the grammar, below the limit."""
        self._ask("accept_token")
        return super().accept_token(token_id)

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """As of the grammar, below the limit."""
        self._ask("fill_bitmask")
        super().fill_bitmask(bitmask, index)

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """As of the grammar, below the limit."""
        self._ask("jump_forward")
        return super().jump_forward(before)

    def fork(self) -> LimitedGrammar:
        """The same grammar at the same place; `restarted` gives one without limits."""
        twin = LimitedGrammar(self.places, self.end_id, self.guesses, self.limit, self.failing)
        twin.num_accepted, twin.is_terminated = self.num_accepted, self.is_terminated
        return twin

    def _ask(self, part: str) -> None:
        if part in self.failing and self.num_accepted >= self.limit:
            raise ValueError(f"filling the tables of a grammar: {part} at place {self.num_accepted}")


def guessed(places: Sequence[frozenset[int]], end_id: int, choice: int) -> FakeGrammar:
    """A grammar in which places have a guess, those with a 1 in `choice`'s binary form, and the guess is the largest token."""
    guesses = [max(place) if choice >> i & 1 and max(place) != end_id else None for i, place in enumerate(places)]
    return FakeGrammar(places, end_id, guesses)
