"""Who wins a race of fork children, from the order in which they end."""

from __future__ import annotations

import pytest

from sglang_lite.errors import ExecutionError, GrammarError
from sglang_lite.race import Race, voting_op
from sglang_lite.request_tree import GenOp, JoinOp, SamplingParams, SelectOp, TextOp

PLAIN = SamplingParams()


def first(count: int, children: int = 3) -> Race:
    return Race(JoinOp(9, 0, tuple(range(1, children + 1)), first=count))


def vote(children: int) -> Race:
    return Race(JoinOp(9, 0, tuple(range(1, children + 1)), vote="x"))


def test_the_first_to_finish_win_in_that_order() -> None:
    race = first(2)
    race.finish(2, None)
    assert race.outcome() is None
    race.finish(0, None)
    race.finish(1, None)
    outcome = race.outcome()
    assert outcome is not None
    assert (outcome.winners, outcome.meta()) == ((2, 0), {"winners": [2, 0]})


def test_a_child_that_failed_does_not_win() -> None:
    race = first(1)
    race.fail(0, GrammarError("no"))
    assert race.outcome() is None
    race.finish(2, None)
    assert race.outcome() is not None
    assert not race.is_open(0)
    assert race.is_open(1)


def test_too_few_that_can_win_are_an_error_with_the_first_ones_cause() -> None:
    race = first(2)
    race.fail(2, GrammarError("no grammar"))
    assert race.outcome() is None
    race.fail(0, GrammarError("other"))
    with pytest.raises(
        ExecutionError, match=r"first=2: 2 failed and only 1 can still win; state 2 .*no grammar"
    ) as lost:
        race.outcome()
    assert isinstance(lost.value.__cause__, GrammarError)


@pytest.mark.parametrize(
    ("children", "votes", "winners"),
    [
        (3, "A", None),
        (3, "AA", (0, 1)),
        (4, "AA", (0, 1)),  # the two others may agree, and would only be as many, and later
        (4, "ABA", (0, 2)),
        (4, "ABB", None),  # one more vote for the first value, and that would lead
        (5, "AAB", None),
        (5, "ABB", None),
        (5, "ABBB", (1, 2, 3)),
        (4, "ABBA", (0, 3)),
        (3, "ABC", (0,)),
        (3, "AB", None),
        (1, "A", (0,)),
    ],
)
def test_a_vote_ends_once_nothing_can_overtake_the_leading_value(
    children: int, votes: str, winners: tuple[int, ...] | None
) -> None:
    race = vote(children)
    outcome = race.outcome()
    for index, value in enumerate(votes):
        assert outcome is None, f"decided after {index} votes"
        race.finish(index, value)
        outcome = race.outcome()
    assert (outcome.winners if outcome is not None else None) == winners


def test_a_vote_tells_its_value_and_the_count() -> None:
    race = vote(3)
    for index, value in enumerate(["no", "yes", "yes"]):
        race.finish(index, value)
    outcome = race.outcome()
    assert outcome is not None
    assert outcome.value == "yes"
    assert outcome.meta() == {"winners": [1, 2], "votes": {"no": 1, "yes": 2}}


def test_a_child_that_fails_has_no_vote() -> None:
    race = vote(3)
    race.fail(0, GrammarError("no"))
    race.finish(1, "A")
    outcome = race.outcome()
    assert outcome is not None
    assert outcome.winners == (1,)


def test_a_child_without_such_a_gen_is_a_failed_one() -> None:
    race = vote(1)
    race.finish(0, None)
    with pytest.raises(ExecutionError, match="no gen or select of that name"):
        race.outcome()


def test_the_vote_is_the_last_op_of_that_name() -> None:
    ops = [GenOp(1, 1, "x", PLAIN), SelectOp(2, 1, "x", ("a",)), GenOp(3, 1, "y", PLAIN), TextOp(4, 1, "x")]
    assert voting_op(ops, "x") == 2
    assert voting_op(ops, "z") is None
