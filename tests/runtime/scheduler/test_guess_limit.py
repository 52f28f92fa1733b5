"""How many guesses are tried: what success and failure change."""

from __future__ import annotations

import pytest

from sglang_lite.runtime.scheduler.guess_limit import MAX_WAIT, GuessLimit


def test_success_doubles_the_number_up_to_the_most() -> None:
    limit, numbers = GuessLimit(20), list[int]()
    for _ in range(5):
        numbers.append(limit.next())
        limit.note(numbers[-1], numbers[-1])
    assert numbers == [4, 8, 16, 20, 20]
    assert (limit.num_kept, limit.num_rejected) == (68, 0)


@pytest.mark.parametrize(("kept", "then"), [(3, 3), (1, 1)])
def test_after_a_part_that_stood_as_many_are_tried(kept: int, then: int) -> None:
    limit = GuessLimit(8)
    limit.note(4, kept)
    assert limit.now == limit.next() == then
    assert (limit.num_kept, limit.num_rejected) == (kept, 4 - kept)


def test_failures_pause_ever_longer_until_one_stands() -> None:
    limit, pauses = GuessLimit(8), list[int]()
    for _ in range(9):
        limit.note(4, 0)
        pause = 0
        assert limit.now == 0
        while not limit.next():
            pause += 1
        pauses.append(pause)
        assert limit.now == 1
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert max(pauses) == MAX_WAIT
    limit.note(1, 1)
    limit.note(2, 0)
    assert [limit.next() for _ in range(2)] == [0, 1], "the first pause is short again"
