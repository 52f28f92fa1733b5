"""The fake runner sees what it is there to see."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.memory.hold import PageCopy
from sglang_lite.runtime.scheduler.plan import ForwardMode, LogprobTarget, Plan, RowPlan, SampleSpec
from tests.support.fake_runner import FakeRunner, Oracle, chain

PROMPT = (2, 3, 4, 5, 6, 7)


def plan(*rows: RowPlan, copies: tuple[PageCopy, ...] = ()) -> Plan:
    return Plan(1, ForwardMode.EXTEND, rows, copies)


def row(ids: tuple[int, ...], start: int, pages: list[int], *, known: tuple[int, ...] | None = None) -> RowPlan:
    end = start + len(ids)
    spec = SampleSpec(SamplingParams(temperature=0.0), 0, end, known, ()) if known else None
    return RowPlan("r", ids, start, np.array(pages, np.int32), spec, (LogprobTarget(len(ids) - 1, (5,)),))


@pytest.fixture
def runner() -> FakeRunner:
    made = FakeRunner(8, 4, 12)
    made.run(plan(row(PROMPT, 0, [1, 2])))
    return made


def test_the_token_is_a_function_of_the_sequence(runner: FakeRunner) -> None:
    result = runner.run(plan(row((8,), 6, [1, 2], known=(*PROMPT, 8)))).rows[0]
    h = chain((*PROMPT, 8))[-1]
    assert result.token_id == int(h) % 12
    assert result.targets[0].logprobs == (Oracle(12).logprob(h, 5),)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (row((8,), 6, [2, 1]), "other positions|free page"),
        (row((8,), 6, [1, 3]), "other positions|free page"),
        (row((8,), 5, [1, 2], known=(*PROMPT, 8)), "its sequence is|position"),
        (row((8,), 6, [0, 2]), "sink"),
        (row((8,), 6, [1]), "has 1 pages"),
        (row((), 6, [1, 2]), "computes nothing"),
        (row((8,), 6, [1, 2], known=(9, *PROMPT[1:], 8)), "its sequence is"),
    ],
)
def test_wrong_pages_rows_positions_and_sequences_are_seen(runner: FakeRunner, bad: RowPlan, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        runner.run(plan(bad))


def test_a_stale_prefix_is_seen(runner: FakeRunner) -> None:
    """Another sequence took the first page over: the chain breaks at its end."""
    runner.run(plan(row((9, 9, 9, 9), 0, [1])))
    with pytest.raises(AssertionError, match="broken chain at"):
        runner.run(plan(row((8,), 6, [1, 2])))


def test_a_freed_page_is_seen(runner: FakeRunner) -> None:
    runner.poison([1])
    with pytest.raises(AssertionError, match="free page"):
        runner.run(plan(row((8,), 6, [1, 2])))


def test_two_rows_that_write_one_page_are_seen(runner: FakeRunner) -> None:
    with pytest.raises(AssertionError, match=r"wrote over|broken chain|other positions"):
        runner.run(plan(row((8,), 0, [3]), row((9,), 0, [3])))


def test_a_row_may_read_what_an_earlier_one_writes() -> None:
    runner = FakeRunner(8, 4, 12)
    runner.run(plan(row(PROMPT[:4], 0, [3]), row(PROMPT[4:], 4, [3, 5], known=PROMPT)))


def test_copies_all_read_before_they_write(runner: FakeRunner) -> None:
    runner.run(plan(row((9, 9, 9, 9), 0, [3])))
    copies = (PageCopy(1, 3, 3), PageCopy(3, 4, 2))
    runner.run(plan(row((8,), 3, [3], known=(2, 3, 4, 8)), row((7,), 2, [4], known=(9, 9, 7)), copies=copies))


def test_a_copied_head_holds_no_more_than_was_copied(runner: FakeRunner) -> None:
    with pytest.raises(AssertionError, match="other positions"):
        runner.run(plan(row((8,), 3, [4]), copies=(PageCopy(1, 4, 2),)))
