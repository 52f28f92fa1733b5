from __future__ import annotations

import pytest

from sglang_lite.errors import CancelledError, ExecutionError, KvOutOfMemoryError, ProgramError
from sglang_lite.lang.backends.op_log import OpLog
from sglang_lite.request_tree import (
    AcceptOp,
    ArgOp,
    CountOp,
    DecideOp,
    EndOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    RefOp,
    RetryOp,
    RewindOp,
    SamplingParams,
    SelectOp,
    TextOp,
)

GEN = SamplingParams()


def test_what_is_done_goes_in_as_text_and_what_ran_as_it_was() -> None:
    log = OpLog()
    ops = [
        TextOp(0, 0, "a"),
        GenOp(1, 0, "x", GEN),
        SelectOp(2, 0, "y", ("p", "q")),
        RefOp(3, 0, 1),
        GenOp(4, 0, "z", GEN),
    ]
    log.add(ops)
    for done in (OpDone(0, "a"), OpDone(1, "one"), OpDone(2, "q")):
        assert log.take(done) == [done]
    assert log.num_open == 2
    assert log.replay() == [
        ops[0],
        TextOp(1, 0, "one", literal=True),
        TextOp(2, 0, "q", literal=True),
        TextOp(3, 0, "one", literal=True),
        ops[4],
    ]


def test_events_of_what_has_ended_are_nothing_new() -> None:
    log = OpLog()
    log.add([GenOp(0, 0, "x", GEN)])
    log.take(OpDone(0, "first"))
    assert log.take(OpDone(0, "second")) == []
    assert log.take(OpDelta(0, "s")) == []
    assert log.replay() == [TextOp(0, 0, "first", literal=True)]


def test_pieces_that_were_handed_on_are_not_repeated() -> None:
    log = OpLog()
    log.add([GenOp(0, 0, "x", GEN, stream=True)])
    assert log.take(OpDelta(0, "abc")) == [OpDelta(0, "abc")]
    log.replay()
    assert log.take(OpDelta(0, "ab")) == []
    assert log.take(OpDelta(0, "cde")) == [OpDelta(0, "de")]
    log.replay()
    assert log.take(OpDelta(0, "abcdefg")) == [OpDelta(0, "fg")]


def test_failed_ops_are_left_out_and_their_forks_with_them() -> None:
    log = OpLog()
    log.add([GenOp(0, 0, "x", GEN), ForkOp(1, 0, (1,)), TextOp(2, 1, "t"), EndOp(3, 0)])
    for op in (0, 1, 2):
        log.take(OpFailed(op, CancelledError("gone")))
    assert log.num_failed == 3
    assert log.replay() == [EndOp(3, 0)]
    assert log.fail_open() == [EndOp(3, 0)]
    assert log.num_open == 0


def test_a_decision_waits_for_the_new_servers_scores() -> None:
    """A server cannot take a decision on scores that it does not have."""
    log = OpLog()
    select, decision = SelectOp(0, 0, "c", ("a", "b"), method="client"), DecideOp(1, 0, 0, 1)
    log.add([select])
    assert log.take(OpScored(0, {})) == [OpScored(0, {})]
    log.add([decision])
    assert log.replay() == [select]
    assert log.take(OpScored(0, {})) == []
    assert log.answer_to(OpScored(0, {})) == decision
    assert log.answer_to(OpScored(7, {})) is None
    assert log.answer_to(OpDelta(0, "x")) is None


HELD = GenOp(0, 0, "x", GEN, hold=True)


def asked(*texts: str) -> OpLog:
    """A held gen whose attempts had these texts, all but the last one answered by a retry that leaves `!`."""
    log = OpLog()
    log.add([HELD])
    for number, text in enumerate(texts, 1):
        assert log.take(OpHeld(0, text, (7,), ("sampled",), {"n": number})) == [
            OpHeld(0, text, (7,), ("sampled",), {"n": number})
        ]
        if number < len(texts):
            log.add([RetryOp(number, 0, 0, text="!")])
            log.take(OpDone(number))
    return log


def test_attempts_that_were_answered_are_answered_again_by_themselves() -> None:
    log = asked("a", "b")
    assert log.replay() == [HELD]
    assert log.take(OpHeld(0, "another a")) == []
    assert log.answer_to(OpHeld(0, "another a")) == RetryOp(1, 0, 0, text="!")
    assert log.take(OpDone(1)) == []
    assert log.take(OpHeld(0, "b")) == []
    assert log.answer_to(OpHeld(0, "b")) is None
    log.add([RetryOp(2, 0, 0)])
    assert log.take(OpDone(2)) == [OpDone(2)]
    assert log.take(OpHeld(0, "c")) == [OpHeld(0, "c")]


def test_an_attempt_that_is_being_checked_must_be_the_same_on_a_new_server() -> None:
    """Else the answer would be about a text that nobody has seen."""
    log = asked("a", "b")
    log.replay()
    log.take(OpHeld(0, "a"))
    with pytest.raises(ExecutionError, match="attempt 2 of gen 0"):
        log.take(OpHeld(0, "other"))


def test_what_was_accepted_goes_in_as_text_and_ends_as_it_would_have() -> None:
    log = asked("a", "b", "c")
    log.add([AcceptOp(9, 0, 0), GenOp(10, 0, "y", GEN)])
    assert log.replay() == [TextOp(0, 0, "!!c", literal=True), GenOp(10, 0, "y", GEN)]
    done = OpDone(0, "!!c", "c", (7,), ("sampled",), {"n": 3, "attempts": 3})
    assert log.take(OpDone(0, "!!c")) == [OpDone(9), done]
    assert log.num_open == 1


def test_a_kept_attempt_is_part_of_the_text() -> None:
    log = OpLog()
    log.add([HELD])
    log.take(OpHeld(0, "a"))
    log.add([RetryOp(1, 0, 0, text=" no ", keep=True)])
    log.take(OpHeld(0, "b"))
    log.add([AcceptOp(2, 0, 0)])
    assert log.replay() == [TextOp(0, 0, "a no b", literal=True)]


def test_a_decided_race_is_none_on_a_new_server() -> None:
    """Its losers, who failed, would have no ops there and win."""
    log = OpLog()
    ops = [
        ForkOp(0, 0, (1, 2)),
        GenOp(1, 1, "x", GEN),
        GenOp(2, 2, "x", GEN),
        JoinOp(3, 0, (1, 2), vote="x"),
        RefOp(4, 0, 3),
    ]
    log.add(ops)
    log.take(OpDone(0))
    log.take(OpDone(2, "b", "b"))
    log.take(OpFailed(1, CancelledError("decided")))
    log.take(OpDone(3, value="b", meta={"winners": [1]}))
    assert log.replay() == [
        ops[0],
        TextOp(2, 2, "b", literal=True),
        JoinOp(3, 0, (1, 2)),
        TextOp(4, 0, "b", literal=True),
    ]


@pytest.mark.parametrize("join", [JoinOp(4, 0, (1, 2), first=1), JoinOp(4, 0, (1, 2), "concat")])
def test_a_failed_child_fails_again_for_the_join_that_waits(join: JoinOp) -> None:
    log = OpLog()
    log.add([ForkOp(0, 0, (1, 2)), GenOp(1, 1, "x", GEN), TextOp(2, 1, "t"), GenOp(3, 2, "x", GEN), join])
    cause = KvOutOfMemoryError("full")
    log.take(OpDone(0))
    log.take(OpFailed(1, cause))
    log.take(OpFailed(2, cause))
    again = log.replay()
    assert [type(op) for op in again] == [ForkOp, ArgOp, GenOp, JoinOp]
    assert (again[1].id, again[1].branch) == (1, 1)
    assert log.take(OpFailed(1, ProgramError("no value"))) == []
    (failed,) = log.take(OpFailed(4, ProgramError("no value")))
    assert isinstance(failed, OpFailed)
    assert (failed.error is cause) is (join.mode == "concat")


def test_marks_and_rewinds_are_made_again() -> None:
    log = OpLog()
    ops = [TextOp(0, 0, "a"), MarkOp(1, 0), GenOp(2, 0, "x", GEN), RewindOp(3, 0, 1), CountOp(4, 0)]
    log.add(ops)
    for done in (OpDone(0, "a"), OpDone(1), OpDone(2, "one"), OpDone(3)):
        log.take(done)
    assert log.replay() == [ops[0], ops[1], TextOp(2, 0, "one", literal=True), ops[3], ops[4]]


def test_what_a_gen_or_select_gave_goes_in_with_its_tokens() -> None:
    """Tokenising the text again may give others, and then what follows would differ."""
    log = OpLog()
    log.add([GenOp(0, 0, "x", SamplingParams(n=2)), SelectOp(1, 0, "y", ("p", "q")), GenOp(2, 0, "z", GEN, hold=True)])
    log.take(OpDone(0, "ab", ["ab", "c"], ids=(7, 8)))
    log.take(OpDone(1, "q", "q", ids=(9,)))
    log.take(OpDone(2, "bad good", "good", ids=(5,)))  # a retry stands before the value: its tokens are not told
    assert log.replay() == [
        TextOp(0, 0, "ab", literal=True, ids=(7, 8), is_models=True),
        TextOp(1, 0, "q", literal=True, ids=(9,)),
        TextOp(2, 0, "bad good", literal=True),
    ]
