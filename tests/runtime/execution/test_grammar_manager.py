"""Compiling beside the loop: once per source, errors with their place, shutdown that leaves nobody waiting."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

from sglang_lite.errors import EngineStoppedError, GrammarError, RequestError
from sglang_lite.grammar import TokenVocab
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.grammar_backend import NativeBackend
from sglang_lite.runtime.execution.grammar_manager import GrammarManager, needs_cursor
from sglang_lite.runtime.execution.thinking_gate import ThinkingGates
from tests.runtime.execution.support import AllowedTokens

WAIT = 60  # seconds until a hanging future fails the test; never waited for otherwise


class Noted(str):
    """What a fake schema compiles to."""

    notes = ()


class FakeCompiler:
    """Compiles a regex to its text; can be held at a gate, and counts."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.sources: list[Any] = []

    def compile_regex(self, pattern: str) -> Any:
        self.sources.append(pattern)
        self.begun.set()
        assert self.gate.wait(WAIT), "the gate stayed shut"
        if pattern == "(":
            raise ValueError("an open group, at position 0 of '('")
        if pattern == "fault":
            raise ZeroDivisionError("a fault inside the compiler")
        return pattern

    def compile_choices(self, choices: Sequence[str]) -> Any:
        self.sources.append(tuple(choices))
        return choices

    def compile_json_schema(self, schema: str, *, strict: bool, whitespace: str) -> Any:
        self.sources.append(("json_schema", schema, strict, whitespace))
        return Noted(schema)

    def compile_structural_tag(self, spec: str, *, strict: bool, whitespace: str) -> Any:
        self.sources.append(("structural_tag", spec, strict, whitespace))
        return Noted(spec)

    def compile_lark(self, text: str) -> Any:
        self.sources.append(("lark", text))
        return text

    def compile_ebnf(self, text: str) -> Any:
        self.sources.append(("ebnf", text))
        return text


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def manager(compiler: FakeCompiler) -> Any:
    made = GrammarManager(lambda: NativeBackend(compiler, _matcher), max_workers=1)
    yield made
    compiler.gate.set()
    made.shutdown()


def _matcher(compiled: Any) -> AllowedTokens:
    return AllowedTokens([len(compiled)])


def regex(pattern: str) -> SamplingParams:
    return SamplingParams(regex=pattern)


def test_each_request_gets_a_matcher_of_its_own(manager: GrammarManager, compiler: FakeCompiler) -> None:
    first, second = (manager.submit(regex("ab")).result(WAIT) for _ in range(2))
    assert first is not second
    assert compiler.sources == ["ab"]


def test_equal_sources_that_come_at_once_are_compiled_once(manager: GrammarManager, compiler: FakeCompiler) -> None:
    compiler.gate.clear()
    futures = [manager.submit(regex("ab")) for _ in range(20)]
    assert not any(future.done() for future in futures)
    compiler.gate.set()
    assert len({id(future.result(WAIT)) for future in futures}) == 20
    assert compiler.sources == ["ab"]
    assert manager.num_compilations == 1


def test_a_known_source_is_there_at_once_while_another_compiles(
    manager: GrammarManager, compiler: FakeCompiler
) -> None:
    manager.submit(regex("ab")).result(WAIT)
    compiler.gate.clear()
    slow = manager.submit(regex("slow"))
    assert manager.submit(regex("ab")).done()
    assert not slow.done()


def test_a_regex_and_an_equal_choice_are_different_constraints(manager: GrammarManager, compiler: FakeCompiler) -> None:
    manager.submit(regex("a.c")).result(WAIT)
    manager.submit(SamplingParams(choices=("a.c",))).result(WAIT)
    assert compiler.sources == ["a.c", ("a.c",)]


def test_an_error_reaches_everyone_who_asked_and_nobody_else(manager: GrammarManager, compiler: FakeCompiler) -> None:
    compiler.gate.clear()
    bad, same, good = manager.submit(regex("(")), manager.submit(regex("(")), manager.submit(regex("x"))
    compiler.gate.set()
    for future in (bad, same, manager.submit(regex("("))):
        with pytest.raises(GrammarError, match=r"compiling the regex of a request: an open group, at position 0"):
            future.result(WAIT)
    good.result(WAIT)
    assert compiler.sources == ["(", "x"]


def test_a_fault_of_the_compiler_does_not_end_the_worker(manager: GrammarManager, compiler: FakeCompiler) -> None:
    with pytest.raises(ZeroDivisionError):
        manager.submit(regex("fault")).result(WAIT)
    manager.submit(regex("x")).result(WAIT)
    with pytest.raises(ZeroDivisionError):
        manager.submit(regex("fault")).result(WAIT)
    assert compiler.sources == ["fault", "x", "fault"]


def test_every_kind_of_constraint_goes_to_its_own_compilation(manager: GrammarManager, compiler: FakeCompiler) -> None:
    """Also where two kinds have the same text, or one text has other options."""
    gbnf = 'root ::= "a"'
    kinds = [
        {"json_schema": "{}"},
        {"json_schema": "{}", "json_strict": False},
        {"json_schema": "{}", "json_whitespace": "any"},
        {"json_schema": "{}", "json_whitespace": "compact"},  # the default: not compiled again
        {"structural_tag": "{}", "json_whitespace": "spaced"},
        {"ebnf": gbnf},
        {"ebnf": "{}"},
        {"regex": "{}", "json_strict": False},
        {"regex": "{}"},  # the options of JSON mean nothing here
        {"choices": ["{}"]},
    ]
    for params in kinds:
        manager.submit(SamplingParams.from_mapping(params)).result(WAIT)
    assert compiler.sources == [
        ("json_schema", "{}", True, "compact"),
        ("json_schema", "{}", False, "compact"),
        ("json_schema", "{}", True, "any"),
        ("structural_tag", "{}", True, "spaced"),
        ("ebnf", gbnf),
        ("lark", "{}"),
        "{}",
        ("{}",),
    ]
    with pytest.raises(RequestError, match="no constraint"):
        manager.submit(SamplingParams())


def test_a_cancelled_future_disturbs_nobody_else(
    manager: GrammarManager, compiler: FakeCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    compiler.gate.clear()
    first, second = manager.submit(regex("ab")), manager.submit(regex("ab"))
    assert first.cancel()
    compiler.gate.set()
    second.result(WAIT)
    with pytest.raises(CancelledError):
        first.result(WAIT)
    assert not caplog.records, "a callback failed, which futures only log"


def test_shutdown_ends_those_who_wait_and_lets_the_running_compilation_finish(
    manager: GrammarManager, compiler: FakeCompiler
) -> None:
    compiler.gate.clear()
    running = manager.submit(regex("running"))
    assert compiler.begun.wait(WAIT)
    waiting = manager.submit(regex("waiting"))
    manager.shutdown()
    manager.shutdown()
    with pytest.raises(EngineStoppedError, match="shut down before its turn"):
        waiting.result(WAIT)
    compiler.gate.set()
    running.result(WAIT)
    with pytest.raises(EngineStoppedError, match="shut down; start a new one"):
        manager.submit(regex("late"))
    assert compiler.sources == ["running"]


def test_two_workers_compile_two_sources_side_by_side(compiler: FakeCompiler) -> None:
    barrier = threading.Barrier(2)

    class Meeting(FakeCompiler):
        def compile_regex(self, pattern: str) -> Any:
            barrier.wait(WAIT)
            return pattern

    manager = GrammarManager(lambda: NativeBackend(Meeting(), _matcher), max_workers=2)
    for future in [manager.submit(regex("a")), manager.submit(regex("b"))]:
        future.result(WAIT)
    manager.shutdown()


def test_only_the_sources_used_last_are_kept(compiler: FakeCompiler) -> None:
    manager = GrammarManager(lambda: NativeBackend(compiler, _matcher), max_cached=2)
    for pattern in ("a", "b", "a", "c", "a", "b"):
        manager.submit(regex(pattern)).result(WAIT)
    manager.shutdown()
    assert compiler.sources == ["a", "b", "c", "b"]


def test_callbacks_may_submit_again(manager: GrammarManager) -> None:
    """An engine's callback may look at the next request at once; no lock may be held while it runs."""
    second: Future[Any] = Future()

    def again(_: Future[Any]) -> None:
        manager.submit(regex("b")).add_done_callback(lambda done: second.set_result(done.result()))

    manager.submit(regex("a")).add_done_callback(again)
    second.result(WAIT)


TOKENS = [b"a", b"b", b"ab", b"c", None]


@pytest.mark.parametrize("make", [lambda vocab: vocab, lambda vocab: lambda: vocab])
def test_the_grammar_package_is_behind_it(make: Callable[[TokenVocab], Any]) -> None:
    vocab = make(TokenVocab(TOKENS, eos_ids=[4]))
    manager = GrammarManager(lambda: NativeBackend.of_vocab(vocab))
    bitmask = np.zeros((1, 1), dtype=np.int32)
    matcher = manager.submit(regex("a+b")).result(WAIT * 5)
    matcher.fill_bitmask(bitmask)
    assert bitmask[0, 0] == 0b00101
    matcher = manager.submit(SamplingParams(choices=("ba", "c"))).result(WAIT)
    matcher.fill_bitmask(bitmask)
    assert bitmask[0, 0] == 0b01010
    with pytest.raises(GrammarError, match=r"compiling the regex of a request: .*position"):
        manager.submit(regex("a(b")).result(WAIT)
    manager.shutdown()


class Slow(FakeCompiler):
    """Holds at the gate only what is called slow."""

    def compile_regex(self, pattern: str) -> Any:
        if not pattern.startswith("slow"):
            return pattern
        self.thread = threading.current_thread()
        return super().compile_regex(pattern)


class Deadlines:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[threading.Timer] = []

    def make(self, seconds: float, fire: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(WAIT + seconds, fire)
        self.timers.append(timer)
        return timer

    def pass_the_first(self) -> None:
        self.timers[0].function()


@pytest.fixture
def stuck() -> Any:
    """A manager of one worker that is at a compilation which does not end, its compiler and its deadlines."""
    compiler, deadlines = Slow(), Deadlines()
    compiler.gate.clear()
    manager = GrammarManager(
        lambda: NativeBackend(compiler, _matcher), max_workers=1, timeout_s=0.5, make_timer=deadlines.make
    )
    waiting = [manager.submit(regex("slow")) for _ in range(3)]
    assert compiler.begun.wait(WAIT)
    yield manager, compiler, deadlines, waiting
    compiler.gate.set()
    manager.shutdown()


def test_what_is_not_compiled_in_time_fails_and_the_pool_goes_on(stuck: Any) -> None:
    """Those who wait get an error that names the limit; others are served by a worker that takes the stuck one's place."""
    manager, compiler, deadlines, waiting = stuck
    worker = compiler.thread
    assert not any(future.done() for future in waiting)
    deadlines.pass_the_first()
    for future in waiting:
        with pytest.raises(GrammarError, match=r"not done after grammar_compile_timeout_s=0\.5"):
            future.result(0)
    manager.submit(regex("x")).result(WAIT)
    with pytest.raises(GrammarError, match="not done after"):
        manager.submit(regex("slow")).result(0)
    assert compiler.sources == ["slow"], "it is compiled twice"
    compiler.gate.set()
    worker.join(WAIT)  # it has been replaced, so it ends with what it was at
    assert manager.submit(regex("slow")).exception(WAIT) is None
    assert compiler.sources == ["slow"]


def test_a_source_behind_a_stuck_one_is_compiled_once_the_stuck_one_is_given_up(stuck: Any) -> None:
    manager, _, deadlines, waiting = stuck
    behind = manager.submit(regex("x"))
    assert not behind.done()
    deadlines.pass_the_first()
    behind.result(WAIT)
    assert waiting[0].exception(0) is not None


def test_a_source_that_is_done_in_time_is_not_failed_later(compiler: FakeCompiler) -> None:
    timers: list[threading.Timer] = []

    def make(seconds: float, fire: Callable[[], None]) -> threading.Timer:
        timers.append(threading.Timer(seconds, fire))
        return timers[-1]

    manager = GrammarManager(lambda: NativeBackend(compiler, _matcher), timeout_s=WAIT, make_timer=make)
    manager.submit(regex("x")).result(WAIT)
    (timer,) = timers
    assert timer.finished.is_set(), "its deadline is still to come"
    manager.shutdown()


def _gates() -> ThinkingGates:
    return ThinkingGates(
        [b"a", b"b", b"<", b">", b""], [4], [4], 5, lambda text: [b"ab<>".index(c) for c in text.encode()]
    )


def test_thinking_goes_before_the_constraint_and_a_budget_needs_none(compiler: FakeCompiler) -> None:
    manager = GrammarManager(lambda: NativeBackend(compiler, _matcher), gates=_gates())
    params = SamplingParams(regex="a", thinking=("<", ">"))
    cursor = manager.submit(params, prompt_ids=(2,)).result(WAIT)
    bitmask = np.zeros((1, 1), dtype=np.int32)
    cursor.fill_bitmask(bitmask)
    assert bitmask[0, 0] == 0b01111
    assert cursor.accept_token(3)
    cursor.fill_bitmask(bitmask)
    assert bitmask[0, 0] == 0b00010, "the constraint has begun"
    free = SamplingParams(thinking=("<", ">"), thinking_budget=0)
    assert needs_cursor(free)
    assert manager.submit(free, prompt_ids=(2,)).result(0).jump_forward() == [3]
    assert not needs_cursor(free.with_(thinking_budget=None))
    manager.shutdown()


def test_no_compiled_kernel_is_loaded_before_a_grammar_is_used() -> None:
    code = (
        "import sys; from sglang_lite.runtime.execution.grammar_manager import GrammarManager;"
        "GrammarManager(lambda: None); sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
