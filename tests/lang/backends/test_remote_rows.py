"""A tree with rows on a server: one request, and the same values as in process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import CancelledError, EngineStoppedError, ProgramError
from sglang_lite.lang.backends.remote_rows import RemoteRow
from sglang_lite.request_tree import ArgOp, GenOp, OpDone, OpFailed, RequestTree, SamplingParams, TextOp, TreeRow
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import TalkingRunner, talking_engine

Made = tuple[Engine, TalkingRunner, LiveServer, sgl.RuntimeEndpoint]
PARAMS = SamplingParams(max_new_tokens=8, temperature=0.0)


@pytest.fixture
def made() -> Iterator[Made]:
    with talking_engine() as (engine, runner), live_server(engine) as server:
        backend = sgl.RuntimeEndpoint(server.url)
        yield engine, runner, server, backend
        backend.shutdown()


@sgl.function(pure=True)
def ask(s: sgl.ProgramState, q: str) -> Any:
    s += "Q: " + q
    forks = s.fork(2)
    for fork in forks:
        fork += " so " + sgl.gen("x", max_tokens=8, temperature=0)
    forks.join()
    s += s["x"][0] + sgl.gen("y", max_tokens=8, temperature=0)
    return s["y"]


ROWS = [{"q": f"row {i}"} for i in range(5)]


def outcome(states: Any) -> list[Any]:
    return [(state["x"], state["y"], state.text(), state.ret_value) for state in states]


def test_a_batch_is_one_request_and_gives_the_same_as_in_process(made: Made) -> None:
    engine, runner, server, backend = made
    runner.replies |= {"row 1": "one", "row 3": "three"}
    here = outcome(ask.run_batch(ROWS, backend=engine))
    there = outcome(ask.run_batch(ROWS, backend=backend))
    assert there == here
    assert here[1][1] == "one"
    assert len(server.app.programs) <= 1


def tree() -> RequestTree:
    made = RequestTree()
    for op in (TextOp(0, 0, "Q: "), ArgOp(1, 0, "q"), GenOp(2, 0, "x", PARAMS)):
        made.add(op)
    return made


def rows(count: int) -> tuple[list[TreeRow], list[list[Any]]]:
    events: list[list[Any]] = [[] for _ in range(count)]
    return [TreeRow({"q": f"row {i}"}, events[i].append, i) for i in range(count)], events


def test_one_row_is_cancelled_and_the_others_go_on(made: Made) -> None:
    _, runner, _, backend = made
    runner.gate = threading.Semaphore(0)
    given, events = rows(3)
    programs = backend.open_rows(tree(), given)
    wait_until(lambda: all(any(e.op == 1 for e in one) for one in events))
    programs[1].cancel()
    runner.gate.release(1000)
    wait_until(lambda: all(any(e.op == 2 for e in one) for one in events))
    assert [type(one[-1]) for one in events] == [OpDone, OpFailed, OpDone]
    assert isinstance(events[1][-1].error, CancelledError)


def test_rows_take_no_ops_and_no_branches(made: Made) -> None:
    given, events = rows(1)
    (program,) = made[3].open_rows(tree(), given)
    assert isinstance(program, RemoteRow)
    program.append([])
    with pytest.raises(ProgramError, match="its tree is whole"):
        program.append([TextOp(9, 0, "x")])
    with pytest.raises(ProgramError, match="cancel the row"):
        program.cancel([0])
    wait_until(lambda: len(events[0]) == 3)


def test_a_server_that_forgot_them_gets_the_rows_that_have_not_ended(made: Made) -> None:
    _, runner, server, backend = made
    runner.gate = threading.Semaphore(0)
    given, events = rows(2)
    backend.open_rows(tree(), given)
    wait_until(lambda: len(server.app.programs) == 1 and all(len(one) >= 2 for one in events))
    server.loop.call_soon_threadsafe(server.app.programs.delete_all)
    runner.gate.release(10000)
    wait_until(lambda: all(len(one) == 3 for one in events))
    assert [[e.op for e in one] for one in events] == [[0, 1, 2]] * 2
    assert all(isinstance(one[-1], OpDone) for one in events)


def test_a_refused_tree_fails_every_row_with_the_servers_words(made: Made) -> None:
    given, events = rows(2)
    given[1] = TreeRow({}, given[1].sink)
    made[3].open_rows(tree(), given)
    wait_until(lambda: all(len(one) == 3 for one in events))
    assert "row 1 has no ['q']" in str(events[0][0].error)


def test_shutdown_fails_what_is_open(made: Made) -> None:
    _, runner, _, backend = made
    runner.gate = threading.Semaphore(0)
    given, events = rows(1)
    backend.open_rows(tree(), given)
    wait_until(lambda: len(events[0]) >= 2)
    backend.shutdown()
    assert isinstance(events[0][-1].error, EngineStoppedError)
    with pytest.raises(EngineStoppedError):
        backend.open_rows(tree(), given)
    runner.gate.release(1000)


def test_a_tree_is_checked_by_the_server(made: Made) -> None:
    long = RequestTree()
    for op in (TextOp(0, 0, "a" * 600), GenOp(1, 0, "x", PARAMS)):
        long.add(op)
    found = made[3].check(long)
    assert [(f.op, f.severity) for f in found] == [(1, "error"), (None, "info")]
    assert found == made[0].check(long)
