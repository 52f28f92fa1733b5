"""One run: where its body runs, what it returns, what it raises."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ExecutionError
from sglang_lite.lang import ProgramState, ScriptedBackend, function, gen, resolve_backend
from sglang_lite.lang.runner import Call, run, run_streaming
from tests.lang.support import Background, HandBackend

setting: ContextVar[str] = ContextVar("setting", default="none")


def test_a_plain_run_is_in_the_callers_thread() -> None:
    @function
    def f(s: ProgramState) -> int:
        return threading.get_ident()

    assert f.run(backend=ScriptedBackend()).ret_value == threading.get_ident()


def test_a_streaming_run_is_in_one_daemon_thread_with_the_callers_context() -> None:
    @function
    def f(s: ProgramState) -> tuple[bool, bool, str]:
        here = threading.current_thread()
        return here is threading.main_thread(), here.daemon, setting.get()

    setting.set("the caller's")
    state = f.run(backend=ScriptedBackend(), stream=True)
    state.sync()
    assert state.ret_value == (False, True, "the caller's")


def test_the_body_runs_in_the_scope_of_its_backend() -> None:
    backend = ScriptedBackend()
    call = Call(lambda s: resolve_backend(), (), {}, backend)
    assert run(call).ret_value is backend
    streaming = run_streaming(call)
    streaming.sync()
    assert streaming.ret_value is backend


def test_the_first_failure_is_the_one_that_is_raised() -> None:
    """Two branches fail; the error that came first is the run's."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += gen("x")

    background = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait_gen(1)
    program.done_others()
    program.fail(program.gens()[1], ExecutionError("first in time"))
    program.fail(program.gens()[0], ExecutionError("second in time"))
    with pytest.raises(ExecutionError, match="first in time"):
        background.result()


def test_an_exit_of_the_body_is_not_swallowed() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("x")
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        f.run(backend=ScriptedBackend())
    state = f.run_batch([()], backend=ScriptedBackend())
    assert isinstance(next(iter(state)).error(), CancelledError)


def test_arguments_are_handed_on_and_not_changed() -> None:
    kwargs: dict[str, Any] = {"b": [1]}
    call = Call(lambda s, a, b: (a, b), (0,), kwargs, ScriptedBackend())
    assert run(call).ret_value == (0, [1])
    assert kwargs == {"b": [1]}
