"""A recorded run in place of a model: same values, same order, and a clear word where the program is another one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import EngineStoppedError, ExecutionError, RequestError
from sglang_lite.lang import (
    ChoicesDecision,
    ChoicesSamplingMethod,
    ProgramState,
    RunOptions,
    ScriptedBackend,
    function,
    gen,
    select,
)
from sglang_lite.lang.backends import replay
from sglang_lite.lang.backends.replay import ReplayBackend, ReplayError
from sglang_lite.records.record import RunRecord
from sglang_lite.records.recorder import RunRecorder
from sglang_lite.request_tree import Event, ForkOp, GenOp, OpDone, SamplingParams
from tests.lang.support import TIMEOUT, HandBackend
from tests.records.support import REPLIES, inner, outline, recorded

RECORD = RunOptions(record=True)


def values(state: ProgramState) -> list[Any]:
    return [state[name] for name in ("topic", "idea", "pick", "last")]


def test_a_file_replays_with_the_same_values_and_texts(tmp_path: Path) -> None:
    first = outline.run(backend=ScriptedBackend(REPLIES), options=RECORD)
    first.record().save(tmp_path / "r.json")
    backend = ScriptedBackend.from_record(tmp_path / "r.json")
    again = outline.run(backend=backend, options=RECORD)
    assert values(again) == values(first)
    assert again.text() == first.text()
    assert again.get_meta_info("topic") == first.get_meta_info("topic")
    assert backend.left_over() == []


def test_events_come_in_the_recorded_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second child was done before the first: so it is when the record is replayed, however often."""
    monkeypatch.setattr(replay, "ORDER_PATIENCE_S", 3600.0)

    @function
    def race(s: ProgramState) -> None:
        for child in s.fork(2):
            child += gen("x")

    hand = HandBackend()
    state = race.run(backend=hand, stream=True, options=RECORD)
    program = hand.wait_program()
    gens = [program.wait_gen(0), program.wait_gen(1)]
    program.done_others()
    program.done(gens[1], "late")
    program.done(gens[0], "early")
    assert state.error() is None
    order = [event.op for event in state.record().events()]
    assert order[-2:] == [gens[1].id, gens[0].id]
    again = race.run(backend=ReplayBackend([state.record()]), options=RECORD)
    assert [event.op for event in again.record().events()] == order


def test_an_event_waits_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first child's gen is there, but in the record the second one's end came before."""
    monkeypatch.setattr(replay, "ORDER_PATIENCE_S", 3600.0)
    ops = [ForkOp(0, 0, (1, 2)), GenOp(1, 1, "x", SamplingParams()), GenOp(2, 2, "x", SamplingParams())]
    recorder = RunRecorder("p", "B", lambda: None, None)
    for op in ops:
        recorder.sent(op)
    for number in (0, 2, 1):
        recorder.take(OpDone(number, "t", "t"))
    seen: list[int] = []
    ended = threading.Event()

    def sink(event: Event) -> None:
        seen.append(event.op)
        if len(seen) == 3:
            ended.set()

    program = ReplayBackend([recorder.record()]).open_program(sink)
    for op in ops:
        program.append([op])
    assert ended.wait(TIMEOUT)
    assert seen == [0, 2, 1]


def test_a_streamed_run_replays_a_record_of_a_plain_one() -> None:
    record = outline.run(backend=ScriptedBackend(REPLIES), options=RECORD).record()
    state = outline.run(backend=ReplayBackend([record]), stream=True)
    assert "".join(state.text_iter("last")) == "the end"
    assert state.error() is None


def test_forced_reads_and_choice_methods_of_the_program_work() -> None:
    class Last(ChoicesSamplingMethod):
        def __call__(self, **scores: Any) -> ChoicesDecision:
            return ChoicesDecision(scores["choices"][-1], {"by": "last"})

    @function
    def f(s: ProgramState) -> None:
        s += "a" + gen("x")
        s += s["x"].upper() + select("c", ["p", "q"], choices_method=Last())

    first = f.run(backend=ScriptedBackend({"x": "hi", "c": "p"}), options=RECORD)
    again = f.run(backend=ReplayBackend([RunRecord.from_json(first.record().to_json())]))
    assert (again["x"], again["c"], again.text()) == ("hi", "q", "ahiHIq")
    assert again.get_meta_info("c")["by"] == "last"


def test_a_failed_op_fails_again_with_its_error() -> None:
    backend = ScriptedBackend(REPLIES | {"topic": ExecutionError("no tea")})
    record = outline.run(backend=backend, options=RunOptions(record=True, on_error="state")).record()
    with pytest.raises(ExecutionError, match="no tea"):
        outline.run(backend=ReplayBackend([record]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda s: s.append("b" + gen("x")), "op 0, a text on branch 0: text is 'b', the record has 'a' there"),
        (lambda s: s.append("a" + select("x", ["p"])), "op 1 is a select 'x' on branch 0, the record has a gen 'x'"),
        (lambda s: s.append("a" + gen("x", temperature=0.5)), "op 1, a gen 'x' on branch 0: temperature is 0.5"),
        (lambda s: s.append("a" + gen("x") + "more"), "op 2, a text on branch 0, is not in the record"),
    ],
)
def test_a_program_that_differs_is_told_where(body: Any, message: str) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "a" + gen("x")

    record = f.run(backend=ScriptedBackend(["v"]), options=RECORD).record()
    with pytest.raises(ReplayError, match=message):
        function(body).run(backend=ReplayBackend([record]))


def test_a_program_that_waits_where_the_record_did_not_still_goes_on() -> None:
    """The record has the second gen's end first; this program does not send it before it has the first value."""

    @function
    def at_once(s: ProgramState) -> None:
        left, right = s.fork(2)
        left += gen("x")
        right += gen("y")

    @function
    def one_by_one(s: ProgramState) -> None:
        left, right = s.fork(2)
        left += gen("x")
        left["x"]
        right += gen("y")

    hand = HandBackend()
    state = at_once.run(backend=hand, stream=True, options=RECORD)
    program = hand.wait_program()
    left, right = program.wait_gen(0), program.wait_gen(1)
    program.done_others()
    program.done(right, "2")
    program.done(left, "1")
    assert state.error() is None
    assert one_by_one.run(backend=ReplayBackend([state.record()])).error() is None


def test_what_was_not_sent_is_left_over() -> None:
    @function
    def shorter(s: ProgramState) -> None:
        s += "a"

    @function
    def longer(s: ProgramState) -> None:
        s += "a" + gen("x")

    backend = ReplayBackend([longer.run(backend=ScriptedBackend(), options=RECORD).record()])
    shorter.run(backend=backend)
    assert backend.left_over() == ["longer: op 1, a gen 'x' on branch 0"]


def test_rows_and_runs_inside_find_their_own_records() -> None:
    @function
    def outer(s: ProgramState, word: str) -> None:
        s += word + gen("x") + inner.run()["deep"]

    rows = [{"word": "a"}, {"word": "b"}]
    script = ScriptedBackend(lambda call: f"<{call.prompt}>")
    states = outer.run_batch(rows, backend=script, options=RECORD)
    records = [RunRecord.from_json(state.record().to_json()) for state in states]
    again = outer.run_batch(list(reversed(rows)), backend=ReplayBackend(records))
    assert [state.text() for state in again] == [state.text() for state in reversed(states)]


def test_a_record_may_be_replayed_again_and_again() -> None:
    backend = ReplayBackend([recorded()])
    texts = [outline.run(backend=backend).text() for _ in range(3)]
    assert len(set(texts)) == 1


def test_an_op_that_was_open_in_the_record_fails() -> None:
    @function
    def f(s: ProgramState) -> RunRecord:
        s += "a" + gen("x")
        return s.record()

    record = f.run(backend=ScriptedBackend(), options=RECORD).ret_value
    with pytest.raises(ReplayError, match="the record was made before op 0 ended"):
        f.run(backend=ReplayBackend([record]), options=RECORD)


def test_a_cancelled_program_ends() -> None:
    record = recorded()
    state = outline.run(backend=ReplayBackend([record]), stream=True, options=RunOptions(timeout=60))
    state.cancel()
    assert state.error() is None or "cancelled" in str(state.error())


def test_after_the_end_it_opens_nothing() -> None:
    backend = ReplayBackend([recorded()])
    backend.shutdown()
    backend.shutdown()
    with pytest.raises(EngineStoppedError):
        outline.run(backend=backend)
    with pytest.raises(RequestError, match="no records"):
        ReplayBackend([])
