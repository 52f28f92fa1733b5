"""API speculation: one call writes ahead, and the texts and gens that follow take from what it wrote.

Source: section 5 of the SGLang paper (arXiv 2312.07104), "API speculative execution".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_lite.lang.backends.hosted.stops import first_stop
from sglang_lite.request_tree import GenOp, Op, RoleEndOp, TextOp

ATTEMPTS = 3
"""Calls for a turn whose texts the model has to reproduce, before it is given up."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Text that a call wrote beyond what was taken. `is_whole`: the model ended it; else the limit cut it."""

    text: str
    is_whole: bool

    def after_text(self, text: str) -> Ahead | None:
        """What is left once the program appended `text`; None: it is not what the model wrote."""
        return Ahead(self.text[len(text) :], self.is_whole) if self.text.startswith(text) else None

    def take(self, stops: tuple[str, ...], is_last: bool) -> tuple[str, Ahead] | None:
        """The value of a gen with these stops, and what is left; None: where it ends is not known.

        Without a stop in the text only a gen that is the last of its turn takes all, and only of a text that the model ended.
        """
        place = first_stop(self.text, stops)
        if place is not None:
            return self.text[:place], Ahead(self.text[place:], self.is_whole)
        if self.is_whole and (is_last or not stops):
            return self.text, Ahead("", True)
        return None


def turn_ahead(first: GenOp, queue: Sequence[Op]) -> list[Op]:
    """The texts and gens of the turn from `first` on, as far as they are known."""
    found: list[Op] = [first]
    for op in queue:
        if isinstance(op, RoleEndOp) or not isinstance(op, TextOp | GenOp):
            break
        found.append(op)
    return found


def find_mismatch(ahead: Ahead, ops: Sequence[Op], is_complete: bool) -> str | None:
    """Why the written text is not a turn of these ops; None: it is. `is_complete`: the turn ends behind them."""
    left: Ahead | None = ahead
    for index, op in enumerate(ops):
        assert left is not None, "the walk goes on after a mismatch"
        if isinstance(op, TextOp):
            before, left = left, left.after_text(op.text)
            if left is None:
                return f"it went on with {before.text[:40]!r}, expected {op.text[:40]!r}"
        elif isinstance(op, GenOp):
            taken = left.take(op.params.stop, is_complete and index == len(ops) - 1)
            if taken is None:
                return f"it wrote none of the stops {list(op.params.stop)} of gen {op.name!r}"
            left = taken[1]
    return None


def without_lead(text: str, lead: str) -> str | None:
    """`text` behind the text that the turn began with, white space before either left out; None: it begins otherwise."""
    wanted, got = lead.lstrip(), text.lstrip()
    if not wanted:
        return text
    return got[len(wanted) :] if got.startswith(wanted) else None
