"""How much prefill fits into a step: budgets of tokens, slots and KV; pure arithmetic over counts of tokens.

Formulas: SGLang's prefill budget. KV is asked for anew at each candidate, since admitting one changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

CLIP = 4096
"""More than so many future tokens of one request are never kept in reserve."""


class Refusal(Enum):
    """Why a candidate does not go into this step."""

    NO_SLOT = "no slot"
    NO_TOKEN = "not enough KV"
    OTHER = "the step is full"


class Grant(NamedTuple):
    """`extend_len` tokens from the end of the cached prefix are computed in this step; cut: more remain."""

    extend_len: int
    is_cut: bool


def reserved_tokens(lefts: Iterable[tuple[int, bool]], ratio: float) -> int:
    """KV that running requests are expected to need yet. `lefts`: (tokens left, ignores the end token) of each."""
    return sum(int(min(left, CLIP) * (1.0 if ignores_end else ratio)) for left, ignores_end in lefts)


class NewTokenRatio:
    """The share of its `max_new_tokens` that a running request is assumed to use; falls slowly, jumps at a retract."""

    STEPS = 600

    def __init__(self, conservativeness: float) -> None:
        self._first = min(0.7 * conservativeness, 1.0)
        self._least = self._first * 0.14
        self.value = self._first

    def decay(self) -> None:
        """One decode step went well."""
        self.value = max(self.value - (self._first - self._least) / self.STEPS, self._least)

    def retracted(self, outputs_and_limits: Iterable[tuple[int, int]]) -> None:
        """KV ran out. Args: (output tokens, most output tokens) of each request that stays."""
        pairs = list(outputs_and_limits)
        used, limit = sum(out for out, _ in pairs), sum(min(most, CLIP) for _, most in pairs)
        self.value = min(1.0, (used + 20 * len(pairs)) / (limit + 1))

    def reset(self) -> None:
        """Nothing runs."""
        self.value = self._first


@dataclass(slots=True)
class PrefillAdder:
    """What is left of one step's prefill budgets.

    Attributes:
        reserved: KV kept for running and admitted requests, not to be given to new ones.
        decode_need: KV of the same step's decode rows, part of `reserved`; no prefill at all may take it.
        rem_input: prompt tokens; only the first candidate may exceed it.
        rem_chunk: prompt tokens, never exceeded: a longer candidate is cut; None: no candidate is cut.
        rem_slots: requests.
        may_cut: one more candidate may be cut; at most one request is cut at any time.
        is_alone: nothing holds KV and nothing is admitted yet: then the reserve for later does not count.

    """

    page_size: int
    reserved: int
    decode_need: int
    rem_input: int
    rem_chunk: int | None
    rem_slots: int
    may_cut: bool = True
    is_alone: bool = False
    num_added: int = 0

    def try_add(self, prefix_len: int, seq_len: int, tokens_left: int, available: int) -> Grant | Refusal:
        """Whether and how much of a candidate goes into the step; changes nothing.

        Args:
            prefix_len: its cached tokens.
            seq_len: all its known tokens.
            tokens_left: most output tokens it may still give.
            available: free and evictable KV now.
        """
        if self.rem_slots <= 0:
            return Refusal.NO_SLOT
        if (refusal := self.refusal_for_more(available)) is not None:
            return refusal
        extend = seq_len - prefix_len
        need = extend + min(tokens_left, CLIP) + self.page_size
        if not self.is_alone and not need < available - self.reserved:
            return Refusal.NO_TOKEN
        if self.rem_chunk is not None:
            if self._ceil(extend) <= self.rem_chunk:
                return Grant(extend, False)
            end = (prefix_len + self.rem_chunk) // self.page_size * self.page_size
            if end >= seq_len:
                return Grant(extend, False)
            return Grant(end - prefix_len, True) if self.may_cut and end > prefix_len else Refusal.OTHER
        if self.num_added and self._ceil(extend) >= self.rem_input:
            return Refusal.OTHER
        return Grant(extend, False)

    def refusal_for_more(self, available: int) -> Refusal | None:
        """Why nothing more can be added whatever it is, or None."""
        if self.is_alone:
            return None
        if available - self.reserved <= 0:
            return Refusal.NO_TOKEN
        has_room = self.rem_chunk is None or self.rem_chunk > 0
        return None if has_room and (self.rem_input > 0 or not self.num_added) else Refusal.OTHER

    def added(self, grant: Grant, tokens_left: int, *, takes_slot: bool = True) -> None:
        """Charge a candidate that was admitted; its pages are gone from the available KV, its future is reserved."""
        self.charge(grant.extend_len)
        # What a cut request needs for the rest is charged when the rest is computed.
        self.reserved += self.page_size + (0 if grant.is_cut else min(tokens_left, CLIP))
        self.rem_slots -= 1 if takes_slot else 0
        self.may_cut = self.may_cut and not grant.is_cut

    def charge(self, num_tokens: int) -> None:
        """Take tokens of this step."""
        self.num_added += 1
        self.is_alone = False
        self.rem_input -= self._ceil(num_tokens)
        if self.rem_chunk is not None:
            self.rem_chunk -= self._ceil(num_tokens)

    def _ceil(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size
