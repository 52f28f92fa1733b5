"""The loop of an agent: the model calls tools, they run, it reads what they gave, until it answers in words."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

from sglang_lite.errors import ExecutionError, ProgramError, RequestError
from sglang_lite.lang.api import assistant, gen
from sglang_lite.lang.event_loop import is_in_event_loop
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.tools.schemas import Tool, read_tools
from sglang_lite.lang.tools.values import ToolCall, ToolReply

OnError: TypeAlias = Literal["model", "raise"]
"""What becomes of a tool's error: the model reads it as the result, or the loop raises it."""


class ToolLoopError(ExecutionError):
    """The model still called tools when the steps of a loop were used up."""


def tool_loop(
    s: ProgramState,
    tools: Sequence[Any],
    name: str = "answer",
    *,
    max_steps: int = 8,
    on_error: OnError = "model",
    on_limit: Literal["answer", "raise"] = "answer",
    parallel: bool = True,
    handlers: Mapping[str, Callable[..., Any]] | None = None,
    **parameters: Any,
) -> ToolReply:
    """Let the model call tools until it answers without a call; returns that answer, which is `s[name]`, too.

    Every step is an assistant's turn, and a turn for the result of each call. The calls of one turn run side by side,
    `async def` functions among them.

    Args:
        tools: as of `gen(tools=)`.
        max_steps: how many turns may call tools.
        on_error: `model`: an error of a tool, and a call that cannot be made, is what the model reads as the result;
            `raise`: the loop raises it.
        on_limit: after `max_steps` turns with calls: `answer`: one more turn, in which nothing may be called; `raise`.
        parallel: False: one call after the other, in order.
        handlers: what a call does, by name, for tools that are no functions; gets the arguments by name, or the object
            of a pydantic model.
        **parameters: further arguments of `gen`.

    Raises:
        RequestError: wrong arguments, or a tool without a function and a handler.
        ToolLoopError: see `on_limit`.
        Exception: of a tool, with `on_error="raise"`; of a gen.
    """
    loop = _Loop(s, tools, name, max_steps, on_error, on_limit, handlers, parameters)
    for step in range(max_steps + 1):
        loop.ask(step)
        reply: ToolReply = s[name]
        if loop.is_answer(reply, step):
            return reply
        loop.put(reply, loop.run_all(reply.tool_calls, parallel=parallel))
    raise AssertionError("the last step answers or raises")


async def tool_loop_async(
    s: ProgramState,
    tools: Sequence[Any],
    name: str = "answer",
    *,
    max_steps: int = 8,
    on_error: OnError = "model",
    on_limit: Literal["answer", "raise"] = "answer",
    parallel: bool = True,
    handlers: Mapping[str, Callable[..., Any]] | None = None,
    **parameters: Any,
) -> ToolReply:
    """As `tool_loop`, for `async def` programs: functions that are no `async def` run on threads."""
    loop = _Loop(s, tools, name, max_steps, on_error, on_limit, handlers, parameters)
    for step in range(max_steps + 1):
        loop.ask(step)
        reply: ToolReply = await s.get(name)
        if loop.is_answer(reply, step):
            return reply
        loop.put(reply, await loop.run_all_async(reply.tool_calls, parallel=parallel))
    raise AssertionError("the last step answers or raises")


class _Loop:
    """One loop: what its turns and its calls are."""

    def __init__(
        self,
        s: ProgramState,
        tools: Sequence[Any],
        name: str,
        max_steps: int,
        on_error: str,
        on_limit: str,
        handlers: Mapping[str, Callable[..., Any]] | None,
        parameters: dict[str, Any],
    ) -> None:
        if type(max_steps) is not int or max_steps < 1:
            raise RequestError(f"running a tool loop: got max_steps={max_steps!r}, expected a whole number >= 1")
        if on_error not in ("model", "raise") or on_limit not in ("answer", "raise"):
            raise RequestError(
                f"running a tool loop: got on_error={on_error!r} and on_limit={on_limit!r}, expected model or raise, and "
                "answer or raise"
            )
        if parameters.get("n") not in (None, 1):
            raise RequestError(f"running a tool loop: got n={parameters['n']!r}, expected one answer")
        self._state = s
        self._name = name
        self._max_steps = max_steps
        self._raises = on_error == "raise"
        self._ends_by_error = on_limit == "raise"
        self._tools = {tool.name: tool for tool in read_tools(tools)}
        self._runs = {tool.name: tool.run for tool in self._tools.values()} | dict(handlers or {})
        without = [tool for tool in self._tools if self._runs[tool] is None]
        if without:
            raise RequestError(f"running a tool loop: {without} are no functions; give handlers for them")
        self._parameters = parameters

    def ask(self, step: int) -> None:
        """Append the model's next turn."""
        parameters = self._parameters
        if step == self._max_steps:
            parameters = {**parameters, "tool_choice": "none"}
        elif step:  # a call that was demanded has been made
            parameters = {key: value for key, value in parameters.items() if key != "tool_choice"}
        given: dict[str, Any] = {"tools": list(self._tools.values()), "n": 1, **parameters}
        self._state.append(assistant(gen(self._name, **given)))

    def is_answer(self, reply: ToolReply, step: int) -> bool:
        """True when the model has answered.

        Raises:
            ToolLoopError: it has not, and there is no further step.
        """
        is_call = bool(reply.tool_calls or reply.faults)
        if is_call and self._ends_by_error and step + 1 >= self._max_steps:
            raise ToolLoopError(
                f"running a tool loop: the model called {[call.name for call in reply.tool_calls]} in the last of "
                f"{self._max_steps} steps; raise max_steps"
            )
        return not is_call

    def put(self, reply: ToolReply, results: Sequence[Any]) -> None:
        """Append the results of the reply's calls, and what is wrong with those that could not be read."""
        for call, result in zip(reply.tool_calls, results, strict=True):
            if isinstance(result, Exception):
                if self._raises:
                    raise result
                result = _told(result)
            self._state.tool_result(call, result)
        for number, fault in enumerate(reply.faults):
            error = RequestError(fault)
            if self._raises:
                raise error
            self._state.tool_result(ToolCall("unknown", {}, f"unread{number:03d}"), _told(error))

    def run_all(self, calls: Sequence[ToolCall], *, parallel: bool) -> list[Any]:
        """What each call gave, or the error that it raised."""
        if is_in_event_loop() and any(inspect.iscoroutinefunction(self._runs.get(call.name)) for call in calls):
            raise ProgramError(
                "running a tool loop with async def tools inside a running event loop: write await tool_loop_async(...)"
            )
        if len(calls) < 2 or not parallel:
            return [self._run(call) for call in calls]
        contexts = [contextvars.copy_context() for _ in calls]
        with ThreadPoolExecutor(len(calls), "sglang_lite-tool") as threads:
            jobs = [threads.submit(context.run, self._run, call) for context, call in zip(contexts, calls, strict=True)]
            return [job.result() for job in jobs]

    async def run_all_async(self, calls: Sequence[ToolCall], *, parallel: bool) -> list[Any]:
        """As `run_all`."""
        if parallel:
            return list(await asyncio.gather(*(self._run_async(call) for call in calls)))
        return [await self._run_async(call) for call in calls]

    def _run(self, call: ToolCall) -> Any:
        try:
            result = self._begin(call)
            return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except Exception as error:  # noqa: BLE001 - a tool is the program's own code: its error goes where the loop says
            return error

    async def _run_async(self, call: ToolCall) -> Any:
        try:
            if inspect.iscoroutinefunction(self._runs.get(call.name)):
                return await self._begin(call)
            result = await asyncio.to_thread(self._begin, call)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:  # noqa: BLE001 - as in `_run`
            return error

    def _begin(self, call: ToolCall) -> Any:
        """Make the call; an `async def` gives what is to be awaited."""
        tool: Tool | None = self._tools.get(call.name)
        run = self._runs.get(call.name)
        if tool is None or run is None:
            raise RequestError(f"calling the tool {call.name!r}: there is none, only {sorted(self._tools)}")
        given = tool.read(call.arguments)
        return run(**given) if isinstance(given, dict) else run(given)


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _told(error: Exception) -> dict[str, str]:
    """An error as the model reads it."""
    return {"error": f"{type(error).__name__}: {error}"}
