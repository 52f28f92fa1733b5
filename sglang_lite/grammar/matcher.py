"""The cursor of one request in a compiled grammar: a state and the states before it, one for each accepted token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from sglang_lite.grammar.bitmask import Bitmask, words_to_flags
from sglang_lite.grammar.compiled import CompiledGrammar, TokenMask
from sglang_lite.grammar.errors import InvalidBitmaskError, InvalidRollbackError
from sglang_lite.grammar.jump import CONTEXT_TOKENS
from sglang_lite.grammar.tables import StaleStateError

T = TypeVar("T")
_ENDED = -2  # behind an end token; beside the states of the grammar, which are -1 and up


class GrammarMatcher:
    """Follows the tokens of one request through `compiled`. Not for use by two threads at once; forks are independent.

    A token is legal exactly when `fill_bitmask` allows it. A rejected token changes nothing. After an end token only end tokens are
    legal. To restore a matcher elsewhere, feed the same tokens to a new one.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self.compiled = compiled
        self._state = compiled.start_state
        self._history: list[int] = []
        self._tokens: list[int] = []

    @property
    def num_accepted(self) -> int:
        """Tokens accepted so far, end tokens included; the most that `rollback` can take back."""
        return len(self._history)

    @property
    def is_accepting(self) -> bool:
        """Whether the tokens so far spell a whole text of the grammar; end tokens are legal exactly then."""
        return self._state == _ENDED or self._ask(self.compiled.is_accepting)

    @property
    def is_terminated(self) -> bool:
        """Whether an end token was accepted."""
        return self._state == _ENDED

    @property
    def has_only_end(self) -> bool:
        """Whether the text is whole and no token can lengthen it: only the end is left."""
        return self.is_accepting and self._mask().num_allowed == len(self.compiled.vocab.eos_ids)

    @property
    def has_no_token(self) -> bool:
        """Whether this is a dead end: the text is not whole and no token of the vocabulary can continue it."""
        return not self.is_accepting and self._mask().num_allowed == 0

    def fill_bitmask(self, bitmask: Bitmask, index: int = 0) -> None:
        """Overwrite row `index` of `bitmask`, int32 `[batch, ceil(V / 32)]`, with the tokens that are legal now.

        Raises:
            InvalidBitmaskError: another type or width, or no such row.
        """
        words = self._mask().words
        if (
            bitmask.ndim != 2
            or bitmask.shape[1] != len(words)
            or bitmask.dtype != np.int32
            or not 0 <= index < bitmask.shape[0]
        ):
            raise InvalidBitmaskError(
                f"filling row {index} of a bitmask: expected int32 [batch, {len(words)}], got {bitmask.dtype} {list(bitmask.shape)}"
            )
        bitmask[index] = words

    def allowed_ids(self) -> list[int]:
        """All legal token ids, ascending."""
        return np.flatnonzero(words_to_flags(self._mask().words, self.compiled.vocab.vocab_size)).tolist()

    def is_allowed(self, token_id: int) -> bool:
        """Whether `token_id` is legal now, found without computing a mask."""
        return self._after(token_id) != -1

    def accept_token(self, token_id: int) -> bool:
        """Move behind `token_id` if it is legal; says whether it was."""
        target = self._after(token_id)
        if target == -1:
            return False
        self._history.append(self._state)
        self._tokens.append(token_id)
        self._state = target
        return True

    def accept_tokens(self, token_ids: Iterable[int]) -> int:
        """Accept tokens up to the first that is not legal; returns how many were accepted."""
        count = 0
        for token_id in token_ids:
            if not self.accept_token(token_id):
                break
            count += 1
        return count

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens.

        Raises:
            InvalidRollbackError: fewer were accepted, or `count` is negative.
        """
        if not 0 <= count <= len(self._history):
            raise InvalidRollbackError(f"rolling back {count} tokens: {len(self._history)} were accepted")
        if count:
            self._state = self._history[-count]
            del self._history[-count:]
            del self._tokens[-count:]

    def fork(self) -> GrammarMatcher:
        """An independent matcher at the same place, with the same history."""
        twin = GrammarMatcher(self.compiled)
        twin._state = self._state
        twin._history = self._history.copy()
        twin._tokens = self._tokens.copy()
        return twin

    def forced_bytes(self) -> bytes:
        """The bytes that every legal continuation begins with, as far as they are singular edges; b"" if there is a choice."""
        return b"" if self._state == _ENDED else self._ask(self.compiled.forced).data

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """The tokens that must come next, as far as the tokenizer would write exactly these whatever follows; none is accepted yet.

        Empty where there is a choice, where a character is half written, or where the vocabulary has no `encode`. Tokens accepted
        before stay as they are: if the tokenizer would write the last of them in another way, nothing is forced.

        Args:
            before: what stands before the first accepted token, as far as it is text of the same run; the last four tokens count.
        """
        if self._state == _ENDED:
            return []
        missing = CONTEXT_TOKENS - len(self._tokens)
        context = [*before[-missing:], *self._tokens] if missing > 0 else self._tokens
        return self._ask(lambda state: self.compiled.forced_tokens(state, context))

    def _mask(self) -> TokenMask:
        return self.compiled.end_mask if self._state == _ENDED else self._ask(self.compiled.mask)

    def _after(self, token_id: int) -> int:
        """The state behind `token_id`, or -1 if it is not legal."""
        if token_id in self.compiled.vocab.eos_ids:
            return _ENDED if self.is_accepting else -1
        if self._state == _ENDED:
            return -1
        try:
            return self.compiled.advance_token(self._state, token_id)
        except StaleStateError:
            return self._ask(lambda state: self.compiled.advance_token(state, token_id))

    def _ask(self, question: Callable[[int], T]) -> T:
        """The answer for the state, which is looked for again by the accepted tokens where the tables have begun anew."""
        try:
            return question(self._state)
        except StaleStateError:
            with self.compiled.replayed(self._tokens) as states:
                *self._history, self._state = states
                return question(self._state)
