"""Many rows: order, errors, threads, generators, Ctrl-C, nesting."""

from __future__ import annotations

import contextlib
import io
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, EngineStoppedError, RequestError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, ScriptedCall, batch, function, gen
from sglang_lite.lang.batch import AHEAD, thread_limit
from sglang_lite.lang.pool import ThreadPool
from sglang_lite.lang.seeds import row_seed
from tests.lang.support import TIMEOUT, Background, HandBackend, HandProgram


def echo(call: ScriptedCall) -> str:
    return f"<{call.prompt}>"


@function
def one_gen(s: ProgramState, q: str, more: str = "") -> str:
    s += q + more + gen("x")
    return q


def test_rows_are_dicts_tuples_or_lists_and_stay_in_order() -> None:
    rows: list[Any] = [{"q": "a"}, ("b",), ["c", "!"], {"q": "d", "more": "?"}]
    states = one_gen.run_batch(rows, backend=ScriptedBackend(echo))
    assert isinstance(states, list)
    assert [state["x"] for state in states] == ["<a>", "<b>", "<c!>", "<d?>"]
    assert [state.ret_value for state in states] == ["a", "b", "c", "d"]


def test_no_rows_give_no_states_and_no_backend_is_needed() -> None:
    assert one_gen.run_batch([]) == []
    assert one_gen.run_batch(iter(())) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "b", "c"), "row 1 of a batch of one_gen: got 3 values, expected at most 2"),
        ((), "missing a required argument: 'q'"),
        ({"q": "a", "z": 1}, "unexpected keyword argument 'z'"),
        ("text", "got 'text', expected a dict"),
        (None, "got None, expected a dict"),
    ],
)
def test_a_row_that_does_not_fit_is_named_before_anything_starts(row: Any, message: str) -> None:
    backend = HandBackend()
    with pytest.raises(RequestError, match=message):
        one_gen.run_batch([("a",), row], backend=backend)
    assert backend.programs == []


def test_any_iterable_gives_rows() -> None:
    def rows() -> Iterator[tuple[str]]:
        yield from [("a",), ("b",)]

    assert [state["x"] for state in one_gen.run_batch(rows(), backend=ScriptedBackend(echo))] == ["<a>", "<b>"]


def test_the_order_of_ending_does_not_matter() -> None:
    backend = HandBackend()
    background = Background(lambda: one_gen.run_batch([(str(i),) for i in range(4)], backend=backend))
    for number in (3, 1, 0, 2):
        program = backend.wait_program(number)
        op = program.wait_gen()
        program.done_others()
        program.done(op, f"v{number}")
    states = background.result()
    assert [state["x"] for state in states] == ["v0", "v1", "v2", "v3"]


def test_a_row_does_not_hold_back_the_bodies_after_it() -> None:
    """With a single thread for bodies all rows are sent while the first is still open."""
    backend = HandBackend()
    background = Background(lambda: one_gen.run_batch([("a",)] * 50, num_threads=1, backend=backend))
    for number in range(50):
        op = backend.wait_program(number).wait_gen()
        backend.programs[number].done_others()
        backend.programs[number].wait(lambda number=number: backend.programs[number].num_closes == 1)
        if number:
            backend.programs[number].done(op, "v")
    assert background.is_running
    backend.programs[0].done(backend.programs[0].gens()[0], "v")
    assert len(background.result()) == 50


def test_num_threads_limits_the_bodies_under_way() -> None:
    backend = HandBackend()
    under_way: list[int] = []
    lock = threading.Lock()
    peak = 0

    @function
    def f(s: ProgramState, i: int) -> None:
        nonlocal peak
        with lock:
            under_way.append(i)
            peak = max(peak, len(under_way))
        s += gen("x")
        _ = s["x"]
        with lock:
            under_way.remove(i)

    background = Background(lambda: f.run_batch([(i,) for i in range(10)], num_threads=3, backend=backend))
    for number in range(10):
        program = backend.wait_program(number)
        program.done(program.wait_gen(), "v")
    background.result()
    assert peak <= 3


@pytest.mark.parametrize("bad", [0, -1, 1.5, "many", None])
def test_num_threads_is_auto_or_a_number(bad: Any) -> None:
    with pytest.raises(RequestError, match="got num_threads="):
        one_gen.run_batch([("a",)], num_threads=bad, backend=ScriptedBackend())
    assert thread_limit("auto") == 128
    assert thread_limit(500) == 500


def test_bodies_that_sit_in_a_tool_do_not_hold_up_the_others() -> None:
    """Four bodies meet at a barrier that is no wait for a value."""
    meeting = threading.Barrier(4, timeout=TIMEOUT)

    @function
    def f(s: ProgramState) -> int:
        return meeting.wait()

    states = f.run_batch([()] * 4, backend=ScriptedBackend())
    assert sorted(state.ret_value for state in states) == [0, 1, 2, 3]


def test_batches_inside_rows_do_not_block_each_other() -> None:
    """200 rows, each waiting for three rows of its own, each of which waits for a value."""

    @function
    def inner(s: ProgramState, i: int) -> str:
        s += str(i) + gen("x")
        return s["x"]

    @function
    def outer(s: ProgramState, i: int) -> list[str]:
        return [state.ret_value for state in inner.run_batch([(i,), (i + 1,), (i + 2,)])]

    states = Background(lambda: outer.run_batch([(i,) for i in range(200)], backend=ScriptedBackend(echo))).result()
    assert [state.ret_value for state in states] == [[f"<{i}>", f"<{i + 1}>", f"<{i + 2}>"] for i in range(200)]


def test_a_row_that_waits_for_rows_of_its_own_does_not_take_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of one thread, and a batch in a row of a batch."""
    monkeypatch.setattr(batch, "shared_pool", ThreadPool(1))

    @function
    def outer(s: ProgramState) -> list[Any]:
        return [state.ret_value for state in one_gen.run_batch([("a",), ("b",)])]

    states = Background(lambda: outer.run_batch([(), ()], backend=ScriptedBackend())).result()
    assert [state.ret_value for state in states] == [["a", "b"], ["a", "b"]]


def test_a_generator_gives_rows_in_order_and_runs_ahead_a_little() -> None:
    backend = ScriptedBackend(echo)
    total = 3 * AHEAD
    states = one_gen.run_batch([(str(i),) for i in range(total)], generator_style=True, backend=backend)
    assert not isinstance(states, list)
    assert len(backend.calls) == 0, "nothing starts before the first one is asked for"
    first = next(states)
    assert first["x"] == "<0>"
    assert len(backend.calls) <= AHEAD
    assert [state["x"] for state in states] == [f"<{i}>" for i in range(1, total)]


def test_leaving_a_generator_cancels_what_is_under_way() -> None:
    backend = HandBackend()
    states = one_gen.run_batch([("a",)] * 5, generator_style=True, backend=backend)
    assert not isinstance(states, list)
    first = Background(lambda: next(states))
    for number in range(5):
        backend.wait_program(number).wait_gen()
    program = backend.programs[0]
    program.done_others()
    program.done(program.gens()[0], "v")
    assert first.result()["x"] == "v"
    states.close()  # type: ignore[attr-defined]
    assert [program.cancels for program in backend.programs] == [[], [None], [None], [None], [None]]


def test_ctrl_c_cancels_all_rows_and_is_raised() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")
        _ = s["x"]

    main = threading.get_ident()

    def press() -> None:
        for number in range(3):
            backend.wait_program(number).wait_gen()
        signal.pthread_kill(main, signal.SIGINT)

    Background(press)
    with pytest.raises(KeyboardInterrupt):
        f.run_batch([()] * 5, num_threads=3, backend=backend)
    for program in backend.programs:
        program.wait(lambda program=program: program.cancels == [None])
    for thread in threading.enumerate():
        if thread.name == "sglang_lite-body":
            thread.join(TIMEOUT)
    assert len(backend.programs) == 3, "rows that had not begun never do"


def test_an_interrupted_outer_run_cancels_the_rows_of_its_batch() -> None:
    backend = HandBackend()

    @function
    def inner(s: ProgramState) -> None:
        s += gen("x")

    @function
    def outer(s: ProgramState) -> list[Any]:
        return [state.error() for state in inner.run_batch([(), ()])]

    state = outer.run(backend=backend, stream=True)
    for number in (1, 2):
        backend.wait_program(number).wait_gen()
    state.cancel()
    assert isinstance(state.error(), CancelledError)
    assert [type(error) for error in state.ret_value] == [CancelledError, CancelledError]


def test_rows_have_seeds_of_their_own_that_repeat() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState, i: int) -> None: ...

    f.run_batch([(i,) for i in range(3)], num_threads=1, backend=backend, options=RunOptions(seed=5))
    seeds = [program.seed for program in backend.programs]
    assert seeds == [row_seed(5, row) for row in range(3)]
    assert len(set(seeds)) == 3
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert row_seed(5, 0) == 5716519417124086793
    assert row_seed(None, 3) is None


def test_a_backend_that_opens_no_program_ends_the_batch() -> None:
    class Closed(HandBackend):
        def open_program(self, sink: Any, *, seed: int | None = None) -> HandProgram:
            raise EngineStoppedError("stopped")

    with pytest.raises(EngineStoppedError, match="stopped"):
        one_gen.run_batch([("a",), ("b",)], backend=Closed())


def test_a_progress_bar_ends_at_the_total() -> None:
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown):
        one_gen.run_batch([("a",)] * 7, progress_bar=True, backend=ScriptedBackend())
    last = shown.getvalue().split("\r")[-1]
    assert last.startswith(f"[{'#' * 30}] 7/7 ")
    assert last.endswith(" s\n")
