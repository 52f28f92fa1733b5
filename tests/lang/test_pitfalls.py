"""The known pitfalls of SGLang's interpreter, by their numbers in the list that the project keeps of them.

Here are those that the language decides. Absent: 9 and 10 (no body is ever run on symbols), 11 and 12 (tokens: the
runtime's tests), 15 (`separate_reasoning`), 18 (API speculation).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ExecutionError, ProgramError, RequestError
from sglang_lite.lang import (
    ProgramState,
    RunOptions,
    ScriptedBackend,
    ScriptedCall,
    batch,
    function,
    gen,
    select,
    user,
)
from sglang_lite.lang.pool import MAX_THREADS
from sglang_lite.request_tree import ForkOp, GenOp
from tests.lang.support import TIMEOUT, Background, HandBackend


class PlannedError(ExecutionError):
    """A failure that the script plans."""


def test_1_and_2_a_fork_sends_and_waits_for_nothing() -> None:
    """The fork of a state with a pending gen goes on at once; nothing is sent before a value is wanted."""
    backend = HandBackend()
    reached: list[str] = []

    @function
    def f(s: ProgramState) -> None:
        s += "prompt"
        s += gen("a")
        forks = s.fork(2)
        forks += gen("b")
        forks.join()
        reached.append("end of body")
        assert backend.programs[0].ops == []

    run = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: len(program.ops) == 6)
    assert reached == ["end of body"]
    assert len(program.batches) == 1, "a program without a forced read travels as one tree"
    fork = next(op for op in program.ops if isinstance(op, ForkOp))
    assert len(fork.children) == 2
    for op in program.gens():
        program.done(op, "x")
    program.done_others()
    assert run.result()["b"] == ["x", "x"]


def test_3_a_failed_op_raises_its_own_error_at_the_read_and_at_the_end() -> None:
    error = PlannedError("no more memory")
    met: list[Exception] = []

    @function
    def reads(s: ProgramState) -> None:
        s += gen("a")
        try:
            _ = s["a"]
        except PlannedError as caught:
            met.append(caught)

    @function
    def does_not_read(s: ProgramState) -> None:
        s += gen("a")

    with pytest.raises(PlannedError, match="no more memory"):
        reads.run(backend=ScriptedBackend([error]))
    assert met == [error]
    with pytest.raises(PlannedError, match="no more memory"):
        does_not_read.run(backend=ScriptedBackend([error]))


def test_3_in_a_batch_errors_stay_with_their_row() -> None:
    """A failed op and an exception of the body in two rows; the others are whole and in order."""

    @function
    def f(s: ProgramState, i: int) -> int:
        if i == 2:
            raise KeyError("the user's own")
        s += f"{i}:"
        s += gen("a")
        return i * 10

    def reply(call: ScriptedCall) -> str:
        if call.prompt == "1:":
            raise PlannedError("row 1")
        return call.prompt * 2

    states = f.run_batch([{"i": i} for i in range(5)], backend=ScriptedBackend(reply))
    assert [type(state.error()) for state in states] == [type(None), PlannedError, KeyError, type(None), type(None)]
    assert [states[i]["a"] for i in (0, 3, 4)] == ["0:0:", "3:3:", "4:4:"]
    assert [state.ret_value for state in states] == [0, 10, None, 30, 40]
    with pytest.raises(PlannedError, match="row 1"):
        _ = states[1]["a"]
    with pytest.raises(PlannedError, match="row 1"):
        states[1].text()
    with pytest.raises(KeyError, match="the user's own"):
        _ = states[2]["a"]
    with pytest.raises(KeyError, match="the user's own"):
        states[2].text()


@pytest.mark.timeout(60)
def test_4_nothing_hangs_after_an_error() -> None:
    @function
    def f(s: ProgramState) -> str:
        s += gen("a")
        assert isinstance(s.error(), PlannedError)
        s += "more" + gen("b") + select("c", ["x", "y"])
        with pytest.raises(PlannedError):
            _ = s["b"]
        with pytest.raises(PlannedError):
            _ = s["c"]
        with s.copy() as t:
            t += gen("d")
        with pytest.raises(PlannedError):
            _ = s["d"]
        assert s.text() == "", "with errors kept on the state, the text is what was reached"
        return "end of body"

    state = f.run(backend=ScriptedBackend([PlannedError("first")]), options=RunOptions(on_error="state"))
    assert state.ret_value == "end of body"
    assert str(state.error()) == "first"
    assert state.text() == ""
    with pytest.raises(PlannedError):
        _ = state["b"]


@pytest.mark.timeout(60)
def test_4_a_state_of_an_ended_run_refuses_to_be_appended_to() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("a")

    state = f.run(backend=ScriptedBackend(["x"]))
    with pytest.raises(ProgramError, match="its run has ended"):
        state += "more"
    with pytest.raises(ProgramError, match="its run has ended"):
        state.fork(2)
    assert state.text() == "x"


def test_5_a_failed_fork_child_is_a_failed_element_of_the_join() -> None:
    def reply(call: ScriptedCall) -> str:
        if call.prompt.endswith("1"):
            raise PlannedError("child 1")
        return "v" + call.prompt[-1]

    @function
    def f(s: ProgramState) -> list[str]:
        forks = s.fork(3)
        forks += lambda i: f"p{i}"
        forks += gen("x")
        forks.join()
        assert isinstance(s.error(), PlannedError)
        with pytest.raises(PlannedError, match="child 1"):
            _ = s["x"]
        return [forks[0]["x"], forks[2]["x"]]

    state = f.run(backend=ScriptedBackend(reply), options=RunOptions(on_error="state"))
    assert state.ret_value == ["v0", "v2"]
    assert isinstance(state.error(), PlannedError)
    with pytest.raises(PlannedError):
        f.run(backend=ScriptedBackend(reply))


def test_6_a_second_fork_and_join_round_loses_nothing() -> None:
    @function
    def f(s: ProgramState) -> None:
        for number in range(2):
            forks = s.fork(2)
            forks += [f"{number}a", f"{number}b"]
            forks += gen("x")
            forks.join()
        assert s["x"] == ["<0a>", "<0b>", "<1a>", "<1b>"]

    state = f.run(backend=ScriptedBackend(lambda call: f"<{call.prompt}>"))
    assert state["x"] == ["<0a>", "<0b>", "<1a>", "<1b>"]


EXIT_SCRIPT = """
import threading
from sglang_lite.lang import ScriptedBackend, function, gen

kept = []
block = threading.Event()

@function
def f(s):
    s += gen("a")
    forks = s.fork(3)
    forks += gen("b")
    kept.append((s, forks))
    kept.append(s["a"])
    if block_body: block.wait()

block_body = False
kept.append(f.run(backend=ScriptedBackend()))
try:
    f.run(backend=ScriptedBackend([ValueError("x")]))
except ValueError as error:
    kept.append(error)
block_body = True
kept.append(f.run(backend=ScriptedBackend(), stream=True))
kept.append(f.run_batch([()] * 300, backend=ScriptedBackend(), generator_style=True))
first = threading.Thread(target=lambda: next(kept[-1]), daemon=True)
first.start()
print("end of script")
"""


def test_7_the_process_ends_whatever_is_kept_or_stuck() -> None:
    """Unjoined forks, a stored exception, a body and a batch that never end."""
    done = subprocess.run([sys.executable, "-c", EXIT_SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "end of script\n"), done.stderr


def threads_at_most(limit: int, work: Callable[[], Any]) -> Any:
    before = threading.active_count()
    peak = 0
    is_done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_done.wait(0.001):
            peak = max(peak, threading.active_count())

    watcher = Background(watch)
    try:
        return work()
    finally:
        is_done.set()
        watcher.result()
        assert peak - before <= limit, f"{peak - before} threads were added"


def test_8_no_threads_for_states_forks_and_pending_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies without a forced read: one helper, whatever the rows and forks; the watcher and the backend are two more."""
    monkeypatch.setattr(batch, "STUCK_SECONDS", 3600.0)  # on a busy machine a body that stands still sits in no tool

    @function
    def f(s: ProgramState, i: int) -> None:
        s += f"row {i}"
        forks = s.fork(5)
        forks += gen("x")
        forks.join()

    rows = [{"i": i} for i in range(200)]
    states = threads_at_most(6, lambda: f.run_batch(rows, backend=ScriptedBackend(lambda call: call.prompt)))
    assert [state["x"] for state in states] == [[f"row {i}"] * 5 for i in range(200)]


def test_8_threads_grow_to_the_rows_that_wait_and_no_further() -> None:
    """Every body of 200 rows waits until the test answers: 128 threads wait, the others are not begun."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> str:
        forks = s.fork(5)
        forks += gen("x")
        return forks[4]["x"]

    def answer_all() -> None:
        backend.wait_program(MAX_THREADS - 1)
        for number in range(200):
            program = backend.wait_program(number)
            program.wait_gen(4)
            for op in program.gens():
                program.done(op, str(number))
            program.done_others()

    answers = Background(answer_all)
    states = threads_at_most(MAX_THREADS + 6, lambda: f.run_batch([()] * 200, backend=backend))
    answers.result()
    assert len(states) == 200
    assert sorted(int(state.ret_value) for state in states) == list(range(200))


def test_9_a_batch_runs_each_body_once_and_only_on_real_arguments() -> None:
    seen: list[str] = []
    table = {"a": "one", "b": "two"}

    @function
    def f(s: ProgramState, key: str) -> None:
        seen.append(key)
        s += "A prefix that is longer than sixty-four characters, as it has to be for a pre-cache. " + table[key]
        s += gen("x")

    backend = ScriptedBackend()
    f.run_batch([{"key": "a"}, {"key": "b"}], backend=backend)
    assert sorted(seen) == ["a", "b"]
    assert len(backend.calls) == 2


def test_10_a_trace_knows_joins_turns_and_scopes() -> None:
    @function
    def f(s: ProgramState, topic: str) -> None:
        with s.user(), s.var_scope("asked"):
            s += "About " + topic
        forks = s.fork(2)
        for fork in forks:
            with fork.assistant():
                fork += gen("x")
        forks.join("concate_and_append")

    assert f.trace().is_closed


def test_13_what_the_user_passes_in_is_never_changed() -> None:
    stop, ids, row, choices = ["END"], [7], {"q": "x"}, ["a", "b"]

    @function
    def f(s: ProgramState, q: str, extra: str = "") -> None:
        s += user(q)
        s += gen("a", stop=stop, stop_token_ids=ids, dtype=int)
        s += gen("b", stop=stop)
        s += select("c", choices)

    backend = ScriptedBackend({"a": "1", "b": "text", "c": "b"})
    bound = f.bind(extra="bound")
    bound.run_batch([row, row], stop=stop, backend=backend)
    bound.run(**row, stop=stop, stop_token_ids=ids, backend=backend)
    assert (stop, ids, row, choices) == (["END"], [7], {"q": "x"}, ["a", "b"])
    assert f.bind_arguments == {}
    by_hand = HandBackend()
    expression = gen("a", stop=stop)
    stop.append("LATER")

    @function
    def g(s: ProgramState) -> None:
        s += expression

    run = Background(lambda: g.run(backend=by_hand))
    op = by_hand.wait_program().wait_gen()
    assert isinstance(op, GenOp)
    assert op.params.stop == ("END",)
    by_hand.programs[0].done(op, "x")
    run.result()


@pytest.mark.parametrize("stop", ["\n", ["\n"], ("\n", "x")])
def test_14_dtype_goes_with_any_form_of_stop(stop: Any) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("n", dtype=int, stop=stop)

    backend = ScriptedBackend(["42 apples"])
    assert f.run(backend=backend)["n"] == "42"
    params = backend.calls[0].params
    assert params is not None
    assert params.stop == (*([stop] if isinstance(stop, str) else stop), " ", *(() if "\n" in stop else ("\n",)))


def test_16_a_streaming_reader_meets_the_error_of_the_body() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("a")
        _ = s["a"]
        raise ZeroDivisionError("in the body")

    state = f.run(backend=ScriptedBackend(["one two"]), stream=True)
    pieces: list[str] = []
    with pytest.raises(ZeroDivisionError, match="in the body"):
        pieces.extend(piece for piece in _collecting(pieces, state.text_iter()))
    assert "".join(pieces) == "one two"
    assert isinstance(state.error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        _ = state["never bound"]


def _collecting(into: list[str], pieces: Any) -> Any:
    for piece in pieces:
        into.append(piece)
    return []


def test_16_a_streaming_reader_meets_the_error_of_an_op_after_its_text() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("a")

    state = f.run(backend=backend, stream=True)
    program = backend.wait_program()
    op = program.wait_gen()
    pieces: list[str] = []
    reader = Background(lambda: _collecting(pieces, state.text_iter()))
    program.delta(op, "half")
    program.fail(op, PlannedError("then it broke"))
    with pytest.raises(PlannedError, match="then it broke"):
        reader.result()
    assert pieces == ["half"]


def test_16_every_occurrence_of_a_name_is_streamed() -> None:
    @function
    def f(s: ProgramState) -> None:
        for _ in range(3):
            s += "-" + gen("x")

    state = f.run(backend=ScriptedBackend(["0", "1", "2"]), stream=True)
    assert "".join(state.text_iter("x")) == "012"
    assert state["x"] == "2"
    assert "".join(state.text_iter()) == "-0-1-2"


def test_16_an_async_reader_never_blocks_the_loop() -> None:
    """While the reader waits for text, another task of the loop runs and makes the text come."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += "go " + gen("x")

    async def main() -> list[str]:
        state = f.run(backend=backend, stream=True)
        pieces: list[str] = []

        async def read() -> None:
            async for piece in state.text_async_iter():
                pieces.append(piece)

        reader = asyncio.create_task(read())
        program = backend.wait_program()
        op = program.wait_gen()
        await asyncio.sleep(0)
        program.done_others()
        program.delta(op, "a")
        while pieces != ["go ", "a"]:
            await asyncio.sleep(0)
        program.delta(op, "b")
        program.done(op, "abc")
        await asyncio.wait_for(reader, TIMEOUT)
        return pieces

    assert "".join(Background(lambda: asyncio.run(main())).result()) == "go abc"


def test_17_a_fork_keeps_names_meta_info_turns_and_the_open_role() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("q")
        with s.assistant():
            s += gen("a")
            s["mine"] = [1]
            forks = s.fork(2)
            for child in forks:
                child += "!"
                assert child["a"] == "x"
                assert child["mine"] == [1]
                assert child.get_meta_info("a") == s.get_meta_info("a")
                assert child.get_meta_info("a")["completion_tokens"] == 1
                assert child.messages() == [{"role": "user", "content": "q"}]
                with pytest.raises(ProgramError, match="Nested roles are not allowed"):
                    child.user("nested")

    f.run(backend=ScriptedBackend(["x"]))


def test_20_what_is_left_is_cancelled() -> None:
    """An exception of the body cancels what it had started, and the program is closed."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("a")
        forks = s.fork(2)
        forks += gen("b")
        if s["a"] == "x":
            raise ZeroDivisionError("stop")

    run = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.done(program.wait_gen(), "x")
    with pytest.raises(ZeroDivisionError):
        run.result()
    assert (program.cancels, program.num_closes) == ([None], 1)
    program.fail_rest()


def test_20_a_state_can_be_cancelled_from_outside() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("a")
        _ = s["a"]

    state = f.run(backend=backend, stream=True)
    backend.wait_program().wait_gen()
    state.cancel()
    assert isinstance(state.error(), CancelledError)
    with pytest.raises(CancelledError):
        list(state.text_iter())
    assert backend.programs[0].cancels == [None]


def test_21_unnamed_gens_do_not_share_a_name() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen() + gen() + gen("x")
        assert None not in s
        assert "x" in s, "a name is there from the moment of appending"

    assert f.run(backend=ScriptedBackend(["1", "2", "3"])).text() == "123"


def test_22_options_are_in_one_object_and_a_parameter_of_that_name_is_the_users() -> None:
    @function
    def f(s: ProgramState, options: list[str], seed: int, timeout: str = "t", on_error: str = "e") -> str:
        s += gen("x", choices=options)
        return f"{options}{seed}{timeout}{on_error}"

    state = f.run(options=["a"], seed=3, backend=ScriptedBackend())
    assert state.ret_value == "['a']3te"


def test_22_a_parameter_that_run_hides_is_explained() -> None:
    @function
    def f(s: ProgramState, n: int) -> int:
        return n

    with pytest.raises(TypeError, match=r"run\(\) has parameters of its own named \['n'\]: pass these by position"):
        f.run(n=3, backend=ScriptedBackend())
    assert f.run(3, backend=ScriptedBackend()).ret_value == 3
    assert [state.ret_value for state in f.run_batch([{"n": 4}], backend=ScriptedBackend())] == [4]


def test_choices_that_are_empty_are_refused_early_not_dropped() -> None:
    with pytest.raises(ValueError, match=r"choices=\[\]"):
        gen("x", choices=[])
    with pytest.raises(RequestError):
        select("x", [])
