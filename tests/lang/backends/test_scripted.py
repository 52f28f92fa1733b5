"""The scripted backend as a backend: events, roles, forks, decisions, records, ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, RequestError
from sglang_lite.lang import ProgramState, ScriptedBackend, ScriptedCall, ScriptError, function, gen, select, user
from sglang_lite.request_tree import (
    DecideOp,
    EndOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from tests.lang.support import TIMEOUT


class Sink:
    """Keeps events; waits for as many ends as there are ops."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait(self, count: int) -> dict[int, Event]:
        """The end of each op, once there are `count`."""

        def ends() -> dict[int, Event]:
            return {event.op: event for event in self.events if isinstance(event, OpDone | OpFailed)}

        with self.changed:
            assert self.changed.wait_for(lambda: len(ends()) >= count, TIMEOUT), self.events
            return ends()


def execute(backend: ScriptedBackend, ops: Sequence[Op]) -> tuple[Sink, dict[int, Event]]:
    sink = Sink()
    program = backend.open_program(sink)
    program.append(ops)
    program.close()
    return sink, sink.wait(len(ops))


def gen_op(number: int, branch: int = 0, name: str | None = "x", stream: bool = False, **params: Any) -> GenOp:
    return GenOp(number, branch, name, SamplingParams(**params), stream=stream)


def test_every_op_ends_once_with_the_text_that_it_added() -> None:
    ops: list[Op] = [
        RoleBeginOp(0, 0, "user"),
        TextOp(1, 0, "q"),
        RoleEndOp(2, 0),
        ForkOp(3, 0, (1, 2)),
        gen_op(4, 1),
        SelectOp(5, 2, "c", ("a", "b")),
        JoinOp(6, 0, (1, 2), "concat"),
        EndOp(7, 0),
    ]
    sink, ends = execute(ScriptedBackend({"x": "one two", "c": "b"}, chat_template="chatml"), ops)
    assert len(sink.events) == len(ops)
    texts = [end.text for end in ends.values() if isinstance(end, OpDone)]
    assert texts == ["<|im_start|>user\n", "q", "<|im_end|>\n", "", "one two", "b", "one twob", ""]


def test_a_streamed_gen_sends_pieces_that_join_to_its_text() -> None:
    sink, ends = execute(ScriptedBackend(["one two  three"]), [gen_op(0, stream=True), gen_op(1, max_new_tokens=0)][:1])
    pieces = [event.text for event in sink.events if isinstance(event, OpDelta)]
    assert pieces == ["one", " two", "  three"]
    end = ends[0]
    assert isinstance(end, OpDone)
    assert end.text == end.value == "one two  three"


def test_a_select_reports_scores_and_an_unknown_reply_fails() -> None:
    _, ends = execute(ScriptedBackend(["b"]), [SelectOp(0, 0, "c", ("a", "b"))])
    end = ends[0]
    assert isinstance(end, OpDone)
    assert end.value == "b"
    assert end.meta["normalized_prompt_logprobs"] == [-1.0, -0.1]
    assert [row[0][0] for row in end.meta["input_token_logprobs"]] == [-1.0, -0.1]
    _, ends = execute(ScriptedBackend(["z"]), [SelectOp(0, 0, "c", ("a", "b"))])
    failed = ends[0]
    assert isinstance(failed, OpFailed)
    assert "the reply 'z' is none of the choices ['a', 'b']" in str(failed.error)


def test_a_client_select_waits_for_its_decision_and_holds_back_what_needs_it() -> None:
    backend = ScriptedBackend({"c": "a", "x": "v", "y": "w"})
    sink = Sink()
    program = backend.open_program(sink)
    select_op = SelectOp(1, 1, "c", ("a", "b"), "client", needs_unconditional=True)
    program.append(
        [
            ForkOp(0, 0, (1, 2)),
            select_op,
            gen_op(2, 1),
            ForkOp(3, 1, (3,)),
            TextOp(4, 3, "t"),
            gen_op(5, 2, "y"),
            JoinOp(6, 0, (1, 2)),
            TextOp(7, 0, "after the join"),
        ]
    )
    assert sorted(sink.wait(2)) == [0, 5], "the sibling goes on"
    scored = next(event for event in sink.events if isinstance(event, OpScored))
    assert set(scored.meta) >= {
        "normalized_prompt_logprobs",
        "input_token_logprobs",
        "output_token_logprobs",
        "unconditional_token_logprobs",
    }
    program.append([DecideOp(8, 1, 1, 1)])
    program.close()
    ends = sink.wait(9)
    assert isinstance(ends[1], OpDone)
    assert ends[1].value == "b"
    assert backend.calls[-1].prompt == "b"
    assert all(isinstance(end, OpDone) for end in ends.values())


def test_an_error_fails_what_needs_it_and_nothing_else() -> None:
    error = ExecutionError("planned")
    ops: list[Op] = [
        ForkOp(0, 0, (1, 2)),
        gen_op(1, 1),
        TextOp(2, 1, "after"),
        ForkOp(3, 1, (3,)),
        gen_op(4, 3, "y"),
        gen_op(5, 2, "y"),
        JoinOp(6, 0, (1, 2), "gather"),
        TextOp(7, 0, "on"),
    ]
    _, ends = execute(ScriptedBackend({"x": error, "y": "v"}), ops)
    failed = {number for number, end in ends.items() if isinstance(end, OpFailed)}
    assert failed == {1, 2, 3, 4}
    assert all(end.error is error for end in ends.values() if isinstance(end, OpFailed))


def test_n_texts_are_given_as_a_list_or_one_for_all() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("x", n=2)

    assert f.run(backend=ScriptedBackend([["a", "b"]]))["x"] == ["a", "b"]
    assert f.run(backend=ScriptedBackend(["a"]))["x"] == ["a", "a"]
    with pytest.raises(ScriptError, match="expected a text or a list of 2 texts"):
        f.run(backend=ScriptedBackend([["a"]]))


def test_calls_are_recorded_with_what_the_model_would_have_seen() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("q")
        s += gen("x", max_tokens=5) + select("c", ["a", "b"])

    backend = ScriptedBackend({"x": "v", "c": "a"})
    f.run(backend=backend)
    first, second = backend.calls
    assert (first.index, first.kind, first.name, first.prompt, first.reply) == (0, "gen", "x", "USER:q\n", "v")
    assert first.params is not None
    assert first.params.max_new_tokens == 5
    assert (second.kind, second.prompt, second.choices, second.reply) == ("select", "USER:q\nv", ("a", "b"), "a")


def test_a_function_that_raises_fails_its_op() -> None:
    def reply(call: ScriptedCall) -> str:
        raise LookupError(call.prompt)

    @function
    def f(s: ProgramState) -> None:
        s += "p" + gen("x")

    with pytest.raises(LookupError, match="p"):
        f.run(backend=ScriptedBackend(reply))


def test_cancel_fails_what_waits_on_these_branches_and_below() -> None:
    backend = ScriptedBackend({"c": "a"})
    sink = Sink()
    program = backend.open_program(sink)
    program.append(
        [
            ForkOp(0, 0, (1, 2)),
            ForkOp(1, 1, (3,)),
            SelectOp(2, 3, "c", ("a",), "client"),
            SelectOp(3, 2, "c", ("a",), "client"),
        ]
    )
    sink.wait(2)
    program.cancel([1])
    ends = sink.wait(3)
    assert isinstance(ends[2], OpFailed)
    assert isinstance(ends[2].error, CancelledError)
    program.append([TextOp(4, 3, "late"), DecideOp(5, 3, 2, 0), DecideOp(6, 2, 3, 0)])
    ends = sink.wait(7)
    assert [type(ends[number]) for number in (3, 4, 5, 6)] == [OpDone, OpFailed, OpFailed, OpDone]
    program.append([SelectOp(7, 2, "c", ("a",), "client")])
    program.cancel()
    assert isinstance(sink.wait(8)[7], OpFailed)


def test_shutdown_fails_what_is_open_and_refuses_more() -> None:
    backend = ScriptedBackend({"c": "a"})
    sink = Sink()
    program = backend.open_program(sink)
    program.append([SelectOp(0, 0, "c", ("a",), "client"), TextOp(1, 0, "t")])
    backend.shutdown()
    backend.shutdown()
    ends = sink.wait(2)
    assert all(isinstance(end, OpFailed) and isinstance(end.error, EngineStoppedError) for end in ends.values())
    with pytest.raises(EngineStoppedError):
        program.append([TextOp(2, 0, "t")])
    with pytest.raises(EngineStoppedError):
        backend.open_program(sink)
    program.cancel()
    program.close()
    ScriptedBackend().shutdown()


def test_an_unknown_template_is_refused() -> None:
    with pytest.raises(RequestError, match="chat_template='llama'"):
        ScriptedBackend(chat_template="llama")  # type: ignore[arg-type]


def test_latencies_of_branches_run_side_by_side_and_order_on_a_branch_stays() -> None:
    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(2)
        for i, fork in enumerate(forks):
            fork += f"{i}" + gen("x") + "," + gen("y")
        forks.join("concate_and_append")

    backend = ScriptedBackend(lambda call: f"[{call.prompt}]", latency_s=0.01)
    assert f.run(backend=backend).text() == "0[0],[0[0],]1[1],[1[1],]"
    assert [call.name for call in backend.calls] == ["x", "x", "y", "y"]


def test_a_gen_of_no_tokens_takes_no_reply() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "a" + gen("none", max_tokens=0) + gen("nones", max_tokens=0, n=2) + gen("x")

    state = f.run(backend=ScriptedBackend(["one"]))
    assert (state["none"], state["nones"], state["x"]) == ("", ["", ""], "one")


def test_a_latency_is_no_negative_number() -> None:
    with pytest.raises(RequestError, match="latency_s=-1"):
        ScriptedBackend(latency_s=-1)
