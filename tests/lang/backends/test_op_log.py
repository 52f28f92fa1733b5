from __future__ import annotations

from sglang_lite.errors import CancelledError
from sglang_lite.lang.backends.op_log import OpLog
from sglang_lite.request_tree import (
    DecideOp,
    EndOp,
    ForkOp,
    GenOp,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    RefOp,
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
        assert log.take(done) is done
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
    assert log.take(OpDone(0, "second")) is None
    assert log.take(OpDelta(0, "s")) is None
    assert log.replay() == [TextOp(0, 0, "first", literal=True)]


def test_pieces_that_were_handed_on_are_not_repeated() -> None:
    log = OpLog()
    log.add([GenOp(0, 0, "x", GEN, stream=True)])
    assert log.take(OpDelta(0, "abc")) == OpDelta(0, "abc")
    log.replay()
    assert log.take(OpDelta(0, "ab")) is None
    assert log.take(OpDelta(0, "cde")) == OpDelta(0, "de")
    log.replay()
    assert log.take(OpDelta(0, "abcdefg")) == OpDelta(0, "fg")


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
    assert log.take(OpScored(0, {})) == OpScored(0, {})
    log.add([decision])
    assert log.replay() == [select]
    assert log.take(OpScored(0, {})) is None
    assert log.decision_on(0) == decision
    assert log.decision_on(7) is None
