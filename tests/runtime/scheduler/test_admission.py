from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.admission import CLIP, Grant, NewTokenRatio, PrefillAdder, Refusal, reserved_tokens


def adder(
    page: int = 4, reserved: int = 0, rem_input: int = 100, rem_chunk: int | None = None, slots: int = 8
) -> PrefillAdder:
    return PrefillAdder(page, reserved, 0, rem_input, rem_chunk, slots)


def test_need_must_be_strictly_less_than_what_is_left() -> None:
    """Need is the tokens to compute, the tokens to come, and one page of slack."""
    assert adder().try_add(8, 18, 6, 21) == Grant(10, False)
    assert adder().try_add(8, 18, 6, 20) is Refusal.NO_TOKEN
    assert adder(reserved=1).try_add(8, 18, 6, 21) is Refusal.NO_TOKEN


def test_tokens_to_come_are_clipped() -> None:
    assert adder().try_add(0, 4, 10**9, 4 + CLIP + 4 + 1) == Grant(4, False)
    assert adder().try_add(0, 4, 10**9, 4 + CLIP + 4) is Refusal.NO_TOKEN


def test_an_admitted_request_reserves_its_future_and_a_page() -> None:
    budget = adder(rem_chunk=16)
    budget.added(Grant(5, False), 7)
    assert (budget.reserved, budget.rem_input, budget.rem_chunk, budget.rem_slots) == (7 + 4, 92, 8, 7)
    budget.added(Grant(8, True), 7)
    assert (budget.reserved, budget.rem_chunk, budget.may_cut) == (11 + 4, 0, False)
    assert budget.refusal_for_more(1000) is Refusal.OTHER


def test_slots_end_the_step() -> None:
    assert adder(slots=0).try_add(0, 4, 0, 1000) is Refusal.NO_SLOT


@pytest.mark.parametrize(
    ("prefix", "seq", "chunk", "grant"),
    [
        (0, 16, 16, Grant(16, False)),
        (0, 17, 16, Grant(16, True)),
        (5, 30, 8, Grant(7, True)),
        (3, 8, 4, Grant(1, True)),
        (5, 8, 4, Grant(3, False)),
    ],
)
def test_a_long_prompt_is_cut_at_a_page(prefix: int, seq: int, chunk: int, grant: Grant) -> None:
    assert adder(rem_chunk=chunk).try_add(prefix, seq, 0, 1000) == grant


def test_only_one_request_is_cut() -> None:
    budget = adder(rem_chunk=8)
    budget.may_cut = False
    assert budget.try_add(0, 9, 0, 1000) is Refusal.OTHER
    assert budget.try_add(0, 8, 0, 1000) == Grant(8, False)


def test_without_chunks_only_the_first_prompt_may_exceed_the_step() -> None:
    budget = adder(rem_input=8)
    assert budget.try_add(0, 50, 0, 1000) == Grant(50, False)
    budget.added(Grant(4, False), 0)
    assert budget.try_add(0, 5, 0, 1000) is Refusal.OTHER
    assert budget.try_add(0, 3, 0, 1000) is Refusal.OTHER
    budget.rem_input = 5
    assert budget.try_add(0, 3, 0, 1000) == Grant(3, False)


def test_a_request_that_would_be_alone_is_not_held_to_the_reserve() -> None:
    budget = adder()
    budget.is_alone = True
    assert budget.try_add(0, 16, 1000, 16) == Grant(16, False)
    budget.added(Grant(16, False), 1000)
    assert budget.try_add(0, 1, 0, 16) is Refusal.NO_TOKEN


def test_the_reserve_is_the_expected_share_and_all_of_those_that_ignore_the_end() -> None:
    assert reserved_tokens([(10, False), (10, True), (10**9, True)], 0.5) == 5 + 10 + CLIP


def test_the_ratio_falls_slowly_jumps_at_a_retract_and_starts_anew() -> None:
    ratio = NewTokenRatio(1.0)
    first = ratio.value
    assert first == 0.7
    for _ in range(NewTokenRatio.STEPS):
        ratio.decay()
    assert ratio.value == pytest.approx(first * 0.14)
    ratio.decay()
    assert ratio.value == pytest.approx(first * 0.14)
    ratio.retracted([(10, 100), (30, 100)])
    assert ratio.value == pytest.approx((40 + 40) / 201)
    ratio.retracted([(10, 10)])
    assert ratio.value == 1.0
    ratio.reset()
    assert ratio.value == first
    assert NewTokenRatio(9.0).value == 1.0
