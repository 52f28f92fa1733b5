"""Tokens in flight are read from where the plan before puts them, and from nowhere else."""

from __future__ import annotations

import pytest
import torch

from sglang_lite.runtime.execution.future_tokens import FutureTokens, gather
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, RowPlan
from tests.runtime.execution.support import plan_of, row, spec


def future(rid: str) -> RowPlan:
    return row(rid, [FUTURE_TOKEN], [1], prefix_len=3)._replace(is_future=True)


def test_a_row_finds_its_request_in_the_plan_before() -> None:
    tokens = FutureTokens()
    tokens.opened()
    tokens.sampled(
        plan_of(row("chunk", [1], [1]), row("a", [1], [1], sample=spec()), row("b", [1], [1], sample=spec()))
    )
    assert tokens.places_of([future("b"), row("new", [4], [2]), future("a")]).tolist() == [2, 1]


@pytest.mark.parametrize("rid", ["chunk", "guessing", "unknown"])
def test_a_place_that_nothing_is_put_into_is_not_read(rid: str) -> None:
    """Rows that draw nothing have none, and rows with guesses end where their guesses do."""
    tokens = FutureTokens()
    tokens.opened()
    guessing = row("guessing", [1, 2], [1], sample=spec())._replace(drafts=(spec(),))
    tokens.sampled(plan_of(row("chunk", [1], [1]), guessing))
    with pytest.raises(AssertionError, match="no row of the plan before draws"):
        tokens.places_of([future(rid)])


def test_places_live_for_one_plan() -> None:
    tokens = FutureTokens()
    tokens.opened()
    tokens.sampled(plan_of(row("a", [1], [1], sample=spec())))
    tokens.opened()
    with pytest.raises(AssertionError, match="before the one ahead of it was told how to sample"):
        tokens.opened()
    tokens.sampled(plan_of(row("b", [1], [1], sample=spec())))
    with pytest.raises(AssertionError, match="no row of the plan before draws"):
        tokens.places_of([future("a")])


def test_what_is_no_token_goes_in_as_one_and_is_told_as_it_was() -> None:
    ids = torch.tensor([9, 9, 9, 9])
    taken = gather(ids, torch.tensor([0, 2, 3]), torch.tensor([5, -7, 40]), torch.tensor([0, 1, 2]), 40)
    assert ids.tolist() == [5, 9, 0, 0]
    assert taken.tolist() == [5, -7, 40]
