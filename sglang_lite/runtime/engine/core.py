"""The engine's one thread: takes commands, steps the scheduler, runs the model, hands out results."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from sglang_lite.errors import EngineStoppedError, GrammarError, SglangLiteError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.request_metrics import RequestMetrics
from sglang_lite.runtime.engine.step_profile import StepProfile
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from sglang_lite.runtime.scheduler.loop import AsyncRunner, BackgroundRunner, ClosableRunner, Runner, make_loop
from sglang_lite.runtime.scheduler.messages import (
    AbortReq,
    AddReq,
    FinishReason,
    GrammarCursor,
    GrammarReady,
    Message,
    ReqOutput,
    Usage,
)
from sglang_lite.runtime.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)

_SNAPSHOT_S = 0.1
"""How old the counters that everybody may read get while steps run."""

OutputHandler = Callable[[ReqOutput], None]


class Grammars(Protocol):
    """What compiles constraints."""

    def submit(self, params: Any, prompt_ids: Sequence[int]) -> Future[Any]:
        """Start compiling the constraint of these sampling parameters; the future gives a fresh cursor."""
        ...

    def shutdown(self) -> None:
        """Stop compiling."""
        ...


class EngineCore:
    """Owns the scheduler, the runner and the executor, and is the only one that touches them, on one thread.

    Other threads reach it by `post`. The loop: commands, one plan, one forward, one commit, results to their readers.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner | BackgroundRunner | AsyncRunner,
        grammars: Grammars,
        text: TextParts,
    ) -> None:
        self.scheduler = scheduler
        self.executor = TreeExecutor(self, text, scheduler.kv.total_tokens)
        self._loop = make_loop(scheduler, runner)
        self._runner = runner
        self._grammars = grammars
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._messages: list[Message] = []
        self._handlers: dict[str, OutputHandler] = {}
        self._came_s: dict[str, float] = {}
        """When each request came ..."""
        self._waited_s: dict[str, float] = {}
        """... and how long it waited, from its first row on."""
        self._waiting_calls: set[queue.SimpleQueue[Any]] = set()
        self._rids = itertools.count()
        self.num_steps = 0
        self.metrics = RequestMetrics()
        self.snapshot: dict[str, Any] = {}
        """Counters as they were a moment ago; written by the engine's thread, read by any."""
        self._snapshot_s = 0.0
        self._profile: StepProfile | None = None
        self._stopping = False
        self._death: EngineStoppedError | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="sglang-lite-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that runs; open requests end with `EngineStoppedError`. Idempotent."""
        self._commands.put(self._set_stopping)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def post(self, command: Callable[[], None]) -> None:
        """Run `command` on the engine's thread before its next step.

        Raises:
            EngineStoppedError: the engine has ended, or this process is a fork of the one it runs in.
        """
        with self._lock:
            self.check_running()
            self._commands.put(command)

    def check_running(self) -> None:
        """Raise `EngineStoppedError` where commands come to nothing; waits for nothing."""
        self.check_process()
        if self._death is not None:
            raise EngineStoppedError(str(self._death)) from self._death.__cause__

    def check_process(self) -> None:
        """Raise `EngineStoppedError` in a forked process."""
        if os.getpid() != self._pid:
            raise EngineStoppedError(
                f"using an engine of process {self._pid} in process {os.getpid()}: its thread does not survive fork(); "
                "create an Engine in this process (or start processes with the 'spawn' method)"
            )

    def call(self, function: Callable[[], Any]) -> Any:
        """Run `function` on the engine's thread and return what it returned; the caller waits.

        Raises:
            SglangLiteError: what `function` raised: the caller's fault, not the engine's.
        """
        assert threading.current_thread() is not self._thread, "the engine's own thread must not wait for itself"
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting_calls.add(answer)
        try:
            self.post(lambda: answer.put(_result_of(function)))
            result = answer.get()
        finally:
            self._waiting_calls.discard(answer)
        if isinstance(result, SglangLiteError):
            raise result
        return result

    def submit(self, req: AddReq, on_output: OutputHandler) -> None:
        """Queue a request (engine's thread only); its constraint is compiled beside the running steps."""
        self._handlers[req.rid] = on_output
        self._came_s[req.rid] = now = time.perf_counter()
        self.metrics.came(req.rid, now)
        if not has_constraint(req):
            self._messages.append(req)
            return
        try:
            future = self._grammars.submit(req.sampling, req.input_ids)
        except SglangLiteError as error:
            self._end(req.rid, error, len(req.input_ids))
            return
        self._messages.append(waiting_for_grammar(req))
        future.add_done_callback(lambda done: self._grammar_done(req.rid, on_output, done))

    def send(self, message: Message) -> None:
        """Queue a message for the next step (engine's thread only)."""
        self._messages.append(message)

    def prepare_grammar(self, params: SamplingParams) -> None:
        """Start compiling a constraint that a later request will have (engine's thread only)."""
        with suppress(SglangLiteError):  # the request will meet it, too
            self._grammars.submit(params, ())

    def new_rid(self) -> str:
        """A request id that no request has: callers may have chosen one of the same form."""
        while (rid := f"r{next(self._rids)}") in self._handlers:
            pass
        return rid

    def is_known(self, rid: str) -> bool:
        """A request of this id is under way (engine's thread only)."""
        return rid in self._handlers

    def _set_stopping(self) -> None:
        self._stopping = True

    def _grammar_done(self, rid: str, on_output: OutputHandler, done: Future[GrammarCursor]) -> None:
        """Called on a compiling thread."""
        error = done.exception()
        if error is None:
            message = GrammarReady(rid, grammar=done.result())
        elif isinstance(error, SglangLiteError):
            message = GrammarReady(rid, error=error)
        else:
            logger.error("compiling the constraint of request %s failed", rid, exc_info=error)
            message = GrammarReady(rid, error=GrammarError(f"compiling the constraint of request {rid}: {error!r}"))

        def deliver() -> None:
            if self._handlers.get(rid) is on_output:  # else its request has ended, and the id may be another's by now
                self._messages.append(message)

        try:
            self.post(deliver)
        except EngineStoppedError:
            return  # its request has ended with the engine

    def _run(self) -> None:
        cause: BaseException | None = None
        try:
            while not self._stopping:
                self._take_commands()
                self._step()
        except BaseException as error:
            logger.critical("the engine's loop ended", exc_info=error)
            cause = error
        self._die(cause)

    def _take_commands(self) -> None:
        """Run all waiting commands; with nothing to compute, wait for one."""
        block = not self.scheduler.has_work and not self._messages
        if block or time.perf_counter() - self._snapshot_s > _SNAPSHOT_S:
            self._take_snapshot()
        while (command := self._next_command(block=block)) is not None:
            command()
            block = False

    def _next_command(self, *, block: bool) -> Callable[[], None] | None:
        """The one that came first; None: there is none, and `block` is False."""
        try:
            return self._commands.get(block=block)
        except queue.Empty:
            return None

    def abort_every(self) -> int:
        """End all requests wherever they are; their replies are what they had. Returns how many (engine's thread only)."""
        rids = list(self._handlers)
        for rid in rids:
            self.send(AbortReq(rid))
        return len(rids)

    def begin_profile(self, profile: StepProfile) -> bool:
        """Record steps from here on (engine's thread only); False: another recording is under way."""
        if self._profile is not None:
            return False
        self._profile = profile
        profile.begin(self)
        return True

    def end_profile(self) -> StepProfile | None:
        """End the recording (engine's thread only); None: there is none."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.end()
        return profile

    def _profiled(self, profile: StepProfile, messages: list[Message]) -> Sequence[ReqOutput]:
        started_s = time.perf_counter()
        outputs = self._loop.step(messages)
        found = self.scheduler.statistics()
        counts = {"running": found.running, "prefilling": found.prefilling, "waiting": found.waiting}
        profile.add(self.num_steps, started_s, time.perf_counter(), counts)
        if profile.is_done:
            self.end_profile()
            logger.info("the profile is written: %s", profile.write())
        return outputs

    def _take_snapshot(self) -> None:
        self._snapshot_s = time.perf_counter()
        self.snapshot = self.scheduler.statistics().to_dict() | {
            "programs": self.executor.num_programs,
            "requests": self.metrics.to_dict(),
        }

    def _step(self) -> None:
        messages, self._messages = self._messages, []
        now = time.perf_counter()
        profile = self._profile
        outputs = self._loop.step(messages) if profile is None else self._profiled(profile, messages)
        for rid in self.scheduler.first_admitted:
            self._waited_s[rid] = now - self._came_s.get(rid, now)
        for out in outputs:
            self._hand_out(out)
        self.executor.sweep()
        self.num_steps += 1

    def _hand_out(self, out: ReqOutput) -> None:
        handler = self._handlers.get(out.rid)
        if out.finished is not None:
            self._handlers.pop(out.rid, None)
            self._came_s.pop(out.rid, None)
            out = out._replace(queue_s=self._waited_s.pop(out.rid, None))
        self.metrics.took(out, time.perf_counter())
        if handler is None:
            return
        try:
            handler(out)
        except Exception:
            logger.exception("a reader of request %s failed; other requests go on", out.rid)

    def _end(self, rid: str, error: SglangLiteError, prompt_tokens: int = 0) -> None:
        """End a request that is not in the scheduler."""
        self._hand_out(ReqOutput(rid, finished=FinishReason("abort", error=error), usage=Usage(prompt_tokens, 0, 0, 0)))

    def _die(self, cause: BaseException | None) -> None:
        text = "the engine was shut down" if cause is None else f"the engine died: {cause!r}; start a new one"
        death = EngineStoppedError(text)
        death.__cause__ = cause
        with self._lock:
            self._death = death
        while not self._commands.empty():  # what was posted before the end still gets its answer
            self._run_last(self._commands.get())
        for answer in list(self._waiting_calls):
            answer.put(death)
        self.executor.fail_all(death)
        for rid in list(self._handlers):
            self._end(rid, death)
        self._grammars.shutdown()
        if isinstance(self._runner, ClosableRunner):
            self._runner.close()

    @staticmethod
    def _run_last(command: Callable[[], None]) -> None:
        """Run a command of a dead engine: after a broken step it may fail, and the others must still be answered."""
        try:
            command()
        except Exception:
            logger.exception("a command failed while the engine ended")


def _result_of(function: Callable[[], Any]) -> Any:
    """What it returned, or the error that it raised on purpose."""
    try:
        return function()
    except SglangLiteError as error:
        return error


def has_constraint(req: AddReq) -> bool:
    """The request's text is held by a grammar, or its thinking by a budget."""
    params = req.sampling
    return params.constraint is not None or (params.thinking is not None and params.thinking_budget is not None)


def waiting_for_grammar(req: AddReq) -> AddReq:
    """The same request, not schedulable until its grammar is there."""
    return replace(req, waits_for_grammar=True)
