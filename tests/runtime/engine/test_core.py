"""The engine's loop over the real scheduler and memory, with a fake model and byte tokens."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, EngineStoppedError, GrammarError, RequestError
from sglang_lite.request_tree import (
    Event,
    ForkOp,
    GenOp,
    OpDone,
    OpFailed,
    OpScored,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.engine.core import EngineCore
from sglang_lite.runtime.execution.model_runner import RunnerCounters
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, ReqOutput
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.fake_grammar import FakeGrammar
from tests.support.fake_runner import FakeRunner, Oracle, chain
from tests.support.toy_text import END, VOCAB_SIZE, toy_text

PAGE, PAGES = 4, 65
GREEDY = SamplingParams(max_new_tokens=4, temperature=0.0, ignore_eos=True, seed=0)
PATIENCE = 60.0  # seconds; only a hang is that long


class GatedRunner:
    """A fake model whose steps can be held back or broken by the test."""

    def __init__(self) -> None:
        self.fake = FakeRunner(PAGES, PAGE, VOCAB_SIZE)
        self.counters = RunnerCounters()
        self.may_run = threading.Event()
        self.may_run.set()
        self.is_waiting = threading.Event()
        self.error: BaseException | None = None

    def run(self, plan: Plan) -> StepResult:
        self.is_waiting.set()
        assert self.may_run.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.fake.run(plan)


class HandGrammars:
    """Compiles when the test says so."""

    def __init__(self) -> None:
        self.futures: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self.refuses: Exception | None = None
        self.is_shut_down = False

    def submit(self, params: SamplingParams, prompt_ids: Any = ()) -> Future[Any]:
        if self.refuses is not None:
            raise self.refuses
        future: Future[Any] = Future()
        self.futures.put(future)
        return future

    def shutdown(self) -> None:
        self.is_shut_down = True


class Bench:
    """One running core, and the outputs of the requests that the test sends it."""

    def __init__(self, *, threaded: bool = False) -> None:
        kv = KvManager(num_rows=8, num_pages=PAGES, page_size=PAGE, max_len=64)
        ends = frozenset({END})
        config = SchedulerConfig(
            context_length=64, vocab_size=VOCAB_SIZE, eos_ids=ends, disable_overlap_schedule=not threaded
        )
        text = toy_text()
        self.runner = GatedRunner()
        self.grammars = HandGrammars()
        self.scheduler = Scheduler(config, kv, text.visible_bytes)
        runner = ThreadedRunner(self.runner) if threaded else self.runner
        self.core = EngineCore(self.scheduler, runner, self.grammars, text)
        self.outputs: dict[str, queue.SimpleQueue[ReqOutput]] = {}
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def submit(self, rid: str, text: str = "hello", params: SamplingParams = GREEDY) -> None:
        outputs = self.outputs[rid] = queue.SimpleQueue()
        req = AddReq(rid, tuple(text.encode()), params)
        self.core.post(lambda: self.core.submit(req, outputs.put))

    def finish(self, rid: str) -> tuple[list[int], ReqOutput]:
        """All ids of a request and its terminal output."""
        ids: list[int] = []
        while True:
            out = self.outputs[rid].get(timeout=PATIENCE)
            ids += out.new_ids
            if out.finished is not None:
                return ids, out

    def error(self, rid: str) -> Exception | None:
        _, out = self.finish(rid)
        assert out.finished is not None
        return out.finished.error

    def open_program(self, *ops: Any, sink: Any = None) -> None:
        def start() -> None:
            self.core.executor.open("p", sink or self.events.put, 1)
            self.core.executor.append("p", ops)

        self.core.post(start)

    def end_of(self, op: int) -> OpDone | OpFailed:
        while True:
            event = self.events.get(timeout=PATIENCE)
            if isinstance(event, OpDone | OpFailed) and event.op == op:
                return event

    def hold(self) -> None:
        """Stop the loop inside its next step."""
        self.runner.is_waiting.clear()
        self.runner.may_run.clear()

    def wait_until_held(self) -> None:
        assert self.runner.is_waiting.wait(PATIENCE)


@pytest.fixture(params=[False, True], ids=["one thread", "two threads"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A core whose steps are computed where they are planned, or beside it."""
    before = set(threading.enumerate())
    bench = Bench(threaded=request.param)
    bench.core.start()
    yield bench
    bench.runner.may_run.set()
    bench.core.stop()
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert not {"sglang-lite-engine", "sglang-lite-runner"} & set(names)


def alone(text: str, count: int) -> list[int]:
    """What the fake model says after `text`."""
    oracle, h, ids = Oracle(VOCAB_SIZE), chain(text.encode())[-1], list[int]()
    for position in range(len(text), len(text) + count):
        token = oracle.next_token(h, GREEDY, 0, position, None)
        assert token is not None
        ids.append(token)
        h = chain([token], h, position)[0]
    return ids


def test_every_request_gets_its_own_outputs(bench: Bench) -> None:
    texts = {f"q{i}": "hello"[: 1 + i % 5] + str(i) for i in range(12)}
    for rid, text in texts.items():
        bench.submit(rid, text)
    for rid, text in texts.items():
        ids, out = bench.finish(rid)
        assert ids == alone(text, 4)
        assert out.finished is not None
        assert out.finished.kind == "length"


def test_a_reader_that_raises_harms_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def bad(out: ReqOutput) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.CRITICAL + 1):
        bench.core.post(lambda: bench.core.submit(AddReq("bad", (1, 2), GREEDY), bad))
        bench.submit("good")
        assert bench.finish("good")[0] == alone("hello", 4)
        bench.submit("bad")  # its id is free again
        assert len(bench.finish("bad")[0]) == 4


def test_a_program_sink_that_raises_harms_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Text ops are done inside the command that brings them: the error must not reach the loop."""

    def bad(event: Event) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.CRITICAL + 1):
        bench.open_program(TextOp(1, 0, "a"), GenOp(2, 0, "x", GREEDY), sink=bad)
        bench.core.post(lambda: bench.core.executor.close("p"))
        bench.submit("good")
        assert bench.finish("good")[0] == alone("hello", 4)
        while bench.core.call(lambda: bench.core.executor.num_programs):
            pass
    assert not bench.core.call(lambda: bench.scheduler.has_work)


def test_a_request_waits_for_its_grammar_while_others_run(bench: Bench) -> None:
    bench.submit("held", params=replace(GREEDY, regex="ab"))
    future = bench.grammars.futures.get(timeout=PATIENCE)
    bench.submit("free")
    bench.finish("free")
    future.set_result(FakeGrammar([frozenset({97}), frozenset({98})], END))
    assert bench.finish("held")[0] == [97, 98]


def test_a_grammar_that_fails_ends_its_request_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    first, second = GrammarError("no"), MemoryError("boom")
    with caplog.at_level(logging.CRITICAL + 1):
        for rid, error in (("a", first), ("b", second)):
            bench.submit(rid, params=replace(GREEDY, regex="ab"))
            bench.grammars.futures.get(timeout=PATIENCE).set_exception(error)
    assert bench.error("a") is first
    error = bench.error("b")
    assert isinstance(error, GrammarError)
    assert "MemoryError('boom')" in str(error)
    bench.grammars.refuses = GrammarError("not built")
    bench.submit("c", params=replace(GREEDY, regex="ab"))
    assert bench.error("c") is bench.grammars.refuses


def test_a_grammar_that_comes_after_its_requests_end_does_nothing(bench: Bench) -> None:
    """Also where another request has taken the id meanwhile: it must not run under a foreign constraint."""
    constrained = replace(GREEDY, regex="ab")
    bench.submit("x", params=constrained)
    late = bench.grammars.futures.get(timeout=PATIENCE)
    bench.core.post(lambda: bench.core.send(AbortReq("x")))
    assert isinstance(bench.error("x"), CancelledError)
    bench.submit("x", params=constrained)
    own = bench.grammars.futures.get(timeout=PATIENCE)
    late.set_result(FakeGrammar([frozenset({90})], END))
    own.set_result(FakeGrammar([frozenset({97}), frozenset({98})], END))
    assert bench.finish("x")[0] == [97, 98]


def test_the_loop_makes_no_id_that_a_caller_has_chosen(bench: Bench) -> None:
    bench.hold()
    bench.submit("r0")
    bench.submit("r1")
    bench.open_program(TextOp(1, 0, "a"), GenOp(2, 0, "x", GREEDY))
    bench.runner.may_run.set()
    assert isinstance(bench.end_of(2), OpDone)
    assert bench.finish("r0")[0] == bench.finish("r1")[0] == alone("hello", 4)


def break_engine(bench: Bench, error: BaseException, between: Sequence[Any] = ()) -> None:
    """Let the step that is held fail, after `between` was posted."""
    bench.wait_until_held()
    for command in between:
        bench.core.post(command)
    bench.runner.error = error
    bench.runner.may_run.set()


def test_a_broken_step_ends_every_request_program_and_call_with_its_cause(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cause = ZeroDivisionError("a weight is gone")
    caller = queue.SimpleQueue[Any]()

    def call() -> None:
        try:
            caller.put(bench.core.call(lambda: "answered"))
        except EngineStoppedError as error:
            caller.put(error)

    with caplog.at_level(logging.CRITICAL + 1):
        bench.submit("compiling", params=replace(GREEDY, regex="ab"))
        compiling = bench.grammars.futures.get(timeout=PATIENCE)
        bench.hold()
        bench.submit("running")
        bench.open_program(
            TextOp(1, 0, "a"),
            ForkOp(2, 0, (1,)),
            GenOp(3, 1, "x", GREEDY),
            TextOp(4, 1, "b"),
            SelectOp(5, 0, "c", ("yes", "no")),
        )
        bench.wait_until_held()
        bench.submit("posted during the step")
        thread = threading.Thread(target=call)
        thread.start()
        break_engine(bench, cause)
        errors = [bench.error(rid) for rid in ("running", "compiling", "posted during the step")]
        ends = [bench.end_of(op) for op in (3, 4)]
        errors += [end.error for end in ends if isinstance(end, OpFailed)]
        thread.join(PATIENCE)
    assert len(errors) == 5
    answer = caller.get(timeout=PATIENCE)
    if isinstance(answer, EngineStoppedError):  # it came after the end; before it, it was answered
        errors.append(answer)
    else:
        assert answer == "answered"
    for error in errors:
        assert isinstance(error, EngineStoppedError)
        assert "ZeroDivisionError('a weight is gone')" in str(error)
        assert error.__cause__ is cause
    for use in (lambda: bench.core.call(lambda: None), lambda: bench.core.post(lambda: None)):
        with pytest.raises(EngineStoppedError, match="a weight is gone") as caught:
            use()
        assert caught.value.__cause__ is cause
    bench.core.stop()  # waits for the thread, which may still be at its last words
    assert bench.grammars.is_shut_down
    compiling.set_result(FakeGrammar([], END))  # too late, and nobody is hurt


def test_a_command_that_fails_during_the_end_keeps_nobody_waiting(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def bad() -> None:
        raise KeyError("broken state")

    with caplog.at_level(logging.CRITICAL + 1):
        bench.hold()
        bench.submit("running")
        bench.wait_until_held()
        bench.core.post(bad)
        bench.submit("behind it")
        break_engine(bench, ZeroDivisionError())
        assert isinstance(bench.error("running"), EngineStoppedError)
        assert isinstance(bench.error("behind it"), EngineStoppedError)


def test_a_callers_fault_in_a_call_is_raised_there_and_ends_nothing(bench: Bench) -> None:
    def wrong() -> None:
        raise RequestError("asked wrongly")

    with pytest.raises(RequestError, match="asked wrongly"):
        bench.core.call(wrong)
    assert bench.core.call(lambda: 7) == 7


def test_a_call_that_breaks_the_loop_is_told_why(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def bad() -> None:
        raise KeyError("broken state")

    with caplog.at_level(logging.CRITICAL + 1), pytest.raises(EngineStoppedError, match="broken state"):
        bench.core.call(bad)


def test_the_end_reaches_a_select_that_waits_for_its_program(bench: Bench) -> None:
    """No request is open any more: only the executor knows of it."""
    bench.open_program(TextOp(1, 0, "a"), SelectOp(2, 0, "c", ("yes", "no"), "client"))
    while not isinstance(bench.events.get(timeout=PATIENCE), OpScored):
        pass
    bench.core.stop()
    end = bench.end_of(2)
    assert isinstance(end, OpFailed)
    assert isinstance(end.error, EngineStoppedError)


def functions_of(thread: threading.Thread) -> list[str]:
    """The names of the functions that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return [] if frame is None else [place.f_code.co_name for place, _ in traceback.walk_stack(frame)]


def test_stop_ends_open_work_and_is_idempotent(bench: Bench) -> None:
    bench.hold()
    bench.submit("running", params=replace(GREEDY, max_new_tokens=50))
    bench.open_program(TextOp(1, 0, "a"), GenOp(2, 0, "x", GREEDY))
    bench.wait_until_held()
    stopper = threading.Thread(target=bench.core.stop)
    stopper.start()
    while "join" not in functions_of(stopper):  # then the loop has been told
        pass
    bench.runner.may_run.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    error = bench.error("running")
    assert isinstance(error, EngineStoppedError)
    assert str(error) == "the engine was shut down"
    end = bench.end_of(2)
    assert isinstance(end, OpFailed)
    assert isinstance(end.error, EngineStoppedError)
    bench.core.stop()
    with pytest.raises(EngineStoppedError, match="shut down"):
        bench.core.call(lambda: None)


def test_the_loops_own_thread_may_stop_it(bench: Bench) -> None:
    ended = threading.Event()
    bench.core.post(lambda: (bench.core.stop(), ended.set()))
    assert ended.wait(PATIENCE)
    bench.core.stop()
    with pytest.raises(EngineStoppedError):
        bench.core.call(lambda: None)


def test_many_threads_may_use_it_at_once(bench: Bench) -> None:
    results: dict[str, list[int]] = {}

    def work(number: int) -> None:
        for round_number in range(4):
            rid = f"t{number}-{round_number}"
            bench.submit(rid, rid)
            results[rid] = bench.finish(rid)[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert {rid: alone(rid, 4) for rid in results} == results
    assert len(results) == 24


def test_a_forked_process_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(EngineStoppedError, match=rf"of process {pid} in process {pid + 1}.*create an Engine"):
        bench.core.post(lambda: None)
