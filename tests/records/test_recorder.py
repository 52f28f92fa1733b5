"""The recorder keeps order and the first error, and leaves streamed pieces out."""

from __future__ import annotations

from sglang_lite.errors import CancelledError
from sglang_lite.records.recorder import RunRecorder
from sglang_lite.request_tree import GenOp, OpDelta, OpDone, OpScored, SamplingParams, SelectOp, TextOp


def make() -> RunRecorder:
    return RunRecorder("p", "B", lambda: "m", 3)


def test_events_keep_their_order_and_pieces_are_left_out() -> None:
    recorder = make()
    recorder.sent(TextOp(0, 0, "a"))
    recorder.sent(GenOp(1, 0, "x", SamplingParams()))
    recorder.take(OpDelta(1, "he"))
    recorder.take(OpDone(1, "hello", "hello"))
    recorder.take(OpDone(0, "a"))
    record = recorder.record()
    assert [event.op for event in record.events()] == [1, 0]
    assert (record.ops[1].order, record.ops[0].order) == (0, 1)
    assert (record.program, record.backend, record.model, record.seed) == ("p", "B", "m", 3)


def test_questions_are_kept_beside_the_end() -> None:
    recorder = make()
    recorder.sent(SelectOp(0, 0, "c", ("a", "b"), "client"))
    recorder.take(OpScored(0, {"normalized_prompt_logprobs": [0.0, -1.0]}))
    assert recorder.record().ops[0].state == "open"
    recorder.take(OpDone(0, "a", "a"))
    op = recorder.record().ops[0]
    assert (op.state, len(op.questions), op.questions[0].order) == ("done", 1, 0)


def test_the_first_error_is_the_runs() -> None:
    recorder = make()
    recorder.sent(TextOp(0, 0, "a"))
    recorder.note_error(ValueError("first"))
    recorder.failed(TextOp(0, 0, "a"), CancelledError("later"))
    record = recorder.record()
    assert str(record.error) == "first"
    assert record.ops[0].state == "failed"
