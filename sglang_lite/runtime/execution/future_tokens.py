"""The tokens that the last launched plan draws, on the device, for the plan after it; knows no request but by its id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.runtime.scheduler.plan import Plan, RowPlan

POISON = -7
"""What a place holds that no draw was put into: no token and no code of a failed draw."""


class FutureTokens:
    """One plan's tokens, a place a row: opened by its launch, filled when it samples, read by the next launch."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._is_sampled = True
        self._tokens: list[torch.Tensor] = []

    def places_of(self, rows: Sequence[RowPlan]) -> NDArray[np.int64]:
        """Where the tokens of the future rows among `rows`, in order, will be."""
        places: list[int] = []
        for row in rows:
            if not row.is_future:
                continue
            assert row.rid in self._rows, (
                f"row {row.rid!r} takes a token in flight that no row of the plan before draws; there are {sorted(self._rows)}"
            )
            places.append(self._rows[row.rid])
        return np.array(places, dtype=np.int64)

    def opened(self) -> list[torch.Tensor]:
        """Forget the plan before, whose tokens have been gathered by then; the list takes the new plan's tensor."""
        assert self._is_sampled, "a plan is launched before the one ahead of it was told how to sample"
        self._rows, self._is_sampled, self._tokens = {}, False, []
        return self._tokens

    @property
    def last(self) -> list[torch.Tensor]:
        """The last launched plan's tokens, int64 [rows], as the one tensor of a list that is filled in queued work."""
        return self._tokens

    def sampled(self, plan: Plan) -> None:
        """The draws of the last launched plan are queued. A row with guesses ends where its guesses do: it has no place."""
        self._is_sampled = True
        self._rows = {row.rid: i for i, row in enumerate(plan.rows) if row.sample is not None and not row.drafts}


def gather(
    input_ids: torch.Tensor, at: torch.Tensor, tokens: torch.Tensor, places: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Put `tokens[places]` into `input_ids[at]`, on the device; returns them as they were.

    A token that is none (its draw failed: its request has ended, or ends now) goes in as 0 so that no kernel reads beyond the
    embedding.
    """
    taken = tokens.index_select(0, places)
    input_ids.index_copy_(0, at, torch.where((taken >= 0) & (taken < vocab_size), taken, 0))
    return taken
