"""`async def` bodies: on the caller's loop, on the one of the process, and what must not block them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ProgramError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen
from sglang_lite.lang.event_loop import LoopThread, is_in_event_loop
from tests.lang.support import Background, HandBackend


@function
async def chain(s: ProgramState, word: str, steps: int = 3) -> str:
    for step in range(steps):
        s += word + gen(f"x{step}")
        word = await s.get(f"x{step}") + "."
    return s["x0"]


@function
def plain(s: ProgramState, word: str) -> str:
    s += word + gen("x")
    return s["x"] + "!"


def echo() -> ScriptedBackend:
    return ScriptedBackend(lambda call: f"[{len(call.prompt)}]")


def test_an_async_body_runs_by_every_way_of_running() -> None:
    async def main() -> tuple[ProgramState, ProgramState]:
        one, other = await asyncio.gather(chain.run_async("a", backend=echo()), plain.run_async("a", backend=echo()))
        return one, other

    one, other = asyncio.run(main())
    state = chain.run("a", backend=echo())
    assert one.text() == state.text() == "a[1][1].[8][8].[15]"
    assert (one.ret_value, other.ret_value) == ("[1]", "[1]!")
    streamed = chain.run("a", backend=echo(), stream=True)
    assert "".join(streamed.text_iter()) == state.text()
    rows = chain.run_batch([("a",), {"word": "b", "steps": 1}], backend=echo())
    assert [row.text() for row in rows] == [state.text(), "b[1]"]


def test_run_works_inside_a_running_loop() -> None:
    async def main() -> str:
        return chain.run("a", steps=1, backend=echo()).text()

    assert asyncio.run(main()) == "a[1]"


def test_a_thousand_rows_need_no_thread_of_their_own() -> None:
    seen: set[str] = set()

    @function
    async def f(s: ProgramState, i: int) -> str:
        seen.add(threading.current_thread().name)
        s += f"{i}" + gen("x")
        return await s.get("x")

    states = f.run_batch([(i,) for i in range(1000)], backend=ScriptedBackend(lambda call: call.prompt))
    assert [state.ret_value for state in states] == [str(i) for i in range(1000)]
    assert seen == {"sglang_lite-loop"}


def test_what_would_block_the_loop_is_refused_and_says_what_to_write() -> None:
    @function
    async def f(s: ProgramState) -> None:
        s += gen("x")
        s["known"] = 1
        assert s["known"] == 1
        with pytest.raises(ProgramError, match=r"await s.get\('x'\)"):
            s["x"]
        with pytest.raises(ProgramError, match=r"await f.run_async"):
            plain.run("a")
        with pytest.raises(ProgramError, match=r"await f.run_async"):
            plain.run_batch([("a",)])
        assert await s.get("x") == s["x"] == "<x>"
        await s.wait()
        assert (s.text(), s.error(), s.get_meta_info("x")["completion_tokens"]) == ("<x>", None, 1)
        inner = await plain.run_async("a")
        assert inner["x"] == "<x>"
        with pytest.raises(KeyError):
            await s.get("y")

    f.run(backend=ScriptedBackend())


def test_a_wait_in_an_async_body_is_refused() -> None:
    backend = HandBackend()

    @function
    async def f(s: ProgramState) -> None:
        s += gen("x")
        with pytest.raises(ProgramError, match=r"await s.wait\(\)"):
            s.text()

    run = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.done(program.wait_gen(), "done")
    assert run.result().text() == "done"


@pytest.mark.parametrize("on_error", ["raise", "state"])
def test_errors_are_those_of_a_plain_run(on_error: Any) -> None:
    @function
    async def reads(s: ProgramState) -> None:
        s += gen("x")
        await s.get("x")

    @function
    async def fails(s: ProgramState) -> None:
        raise LookupError("the body's own")

    options = RunOptions(on_error=on_error)

    def both(f: Any, replies: Any) -> list[Any]:
        """What a run and an awaited run give: an error, or a state's error."""

        def outcome(run: Any) -> Any:
            try:
                return run().error()
            except Exception as error:  # noqa: BLE001 - compared below
                return ("raised", type(error))

        return [
            outcome(lambda: f.run(backend=ScriptedBackend(replies), options=options)),
            outcome(lambda: asyncio.run(f.run_async(backend=ScriptedBackend(replies), options=options))),
        ]

    broken = ValueError("broken")
    assert both(reads, [broken]) == ([("raised", ValueError)] * 2 if on_error == "raise" else [broken] * 2)
    assert both(fails, None) == [("raised", LookupError)] * 2


def test_a_cancelled_await_cancels_the_program() -> None:
    backend = HandBackend()
    started = asyncio.Event()

    @function
    async def f(s: ProgramState) -> None:
        s += gen("x")
        s.branch.session.flush()
        started.set()
        await s.get("x")

    async def main() -> None:
        task = asyncio.create_task(f.run_async(backend=backend))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert backend.programs[0].cancels == [None]


def test_a_cancelled_await_of_a_plain_body_ends_its_wait() -> None:
    backend = HandBackend()
    errors: list[Exception] = []

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")
        try:
            s["x"]
        except CancelledError as error:
            errors.append(error)
            raise

    async def main() -> None:
        task = asyncio.create_task(f.run_async(backend=backend))
        await asyncio.to_thread(lambda: backend.wait_program().wait_gen())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    backend.programs[0].wait(lambda: backend.programs[0].cancels == [None])


def test_the_loop_runs_tasks_in_the_context_of_their_starter() -> None:
    loop, variable = LoopThread(), contextvars.ContextVar("variable", default=0)
    variable.set(7)
    seen: list[tuple[int, bool]] = []
    done = threading.Event()

    async def task() -> None:
        seen.append((variable.get(), is_in_event_loop()))
        done.set()

    loop.start(task)
    assert done.wait(20)
    assert seen == [(7, True)]
    assert not is_in_event_loop()
