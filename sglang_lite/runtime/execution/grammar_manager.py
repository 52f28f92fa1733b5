"""Compiles the constraints of requests beside the engine's loop, once each; knows no step.

The backend (the grammar package and the compiled kernels it needs, or another one) is made by the first compilation, on a
worker thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from sglang_lite.errors import EngineStoppedError, GrammarError, SglangLiteError
from sglang_lite.runtime.execution.grammar_backend import Constraint, GrammarBackend, constraint_of
from sglang_lite.runtime.execution.thinking_gate import ThinkingGates
from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.sampling_params import SamplingParams

MAX_CACHED = 256
"""Compiled grammars kept; each also keeps the tables that its requests fill."""

MAX_WORKERS = 2
"""Constraints compiled at a time."""

MAX_OVERDUE = 8
"""Workers that may be behind their deadline and replaced; beyond, the pool has fewer until one of them is done."""


class _Job:
    """One compilation: `done` gives what was compiled; `is_overdue`: its deadline has passed, nobody waits for it any more."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.done: Future[Any] = Future()
        self.answers: list[tuple[Future[GrammarCursor], Callable[[Any], GrammarCursor]]] = []
        self.is_overdue = False
        self.is_replaced = False
        """Another worker took the place of the one that compiles it."""


class GrammarManager:
    """Compiles on `max_workers` daemon threads and hands out a fresh cursor for each request.

    Equal constraints are compiled once: whoever comes while a compilation runs waits for it, and whoever comes later gets a
    cursor at once. A `GrammarError` is kept like a grammar. The `max_cached` most recently used ones stay. Any thread may
    call any method.

    A compilation that takes longer than `timeout_s` (None: no deadline) fails everybody who waits for it. It cannot be
    stopped: it goes on, another worker takes its place, and once it is done, its result serves those who come then. The time
    counts from its begin; making the backend does not count.
    """

    def __init__(
        self,
        make_backend: Callable[[], GrammarBackend],
        max_workers: int = MAX_WORKERS,
        *,
        max_cached: int = MAX_CACHED,
        timeout_s: float | None = None,
        gates: ThinkingGates | None = None,
        make_timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        """`make_backend` is called once, by the first compilation. `gates`: for requests with thinking; None: there are none."""
        self._max_workers = max_workers
        self._max_cached = max_cached
        self._timeout_s = timeout_s
        self._gates = gates
        self._make_timer = make_timer
        self._make_backend = make_backend
        self._backend: GrammarBackend | None = None
        self._backend_lock = threading.Lock()
        self._lock = threading.Lock()
        self._jobs: OrderedDict[Constraint, _Job] = OrderedDict()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._num_workers = 0
        self._num_started = 0
        self._num_overdue = 0
        self._is_stopped = False
        self._num_compilations = 0

    @property
    def num_compilations(self) -> int:
        """Compilations begun since the start."""
        return self._num_compilations

    def submit(self, params: SamplingParams, prompt_ids: Sequence[int] = ()) -> Future[GrammarCursor]:
        """A cursor at the start of what holds the text of `params` (`needs_cursor`), now or later.

        The future fails with `GrammarError` where the source cannot be compiled, or not in time, and with
        `EngineStoppedError` where `shutdown` came first. It may be cancelled. `prompt_ids` say whether the model thinks already.

        Raises:
            EngineStoppedError: after `shutdown`.
            RequestError: nothing holds the text.

        """
        marks, answer = params.thinking, Future[GrammarCursor]()

        def finish(cursor: GrammarCursor | None) -> GrammarCursor:
            if marks is None or self._gates is None:
                assert cursor is not None, "a request without a constraint needs a gate"
                return cursor
            return self._gates.make(marks, params.thinking_budget, prompt_ids, cursor)

        if params.constraint is None and needs_cursor(params):
            answer.set_result(finish(None))
            return answer
        constraint = constraint_of(params)
        with self._lock:
            if self._is_stopped:
                raise EngineStoppedError("compiling a grammar: the engine is shut down; start a new one")
            job = self._jobs.get(constraint)
            if job is None:
                job = self._jobs[constraint] = _Job(constraint)
                self._num_compilations += 1
                self._queue.put(job)
                self._start_worker()
                self._drop_oldest()
            self._jobs.move_to_end(constraint)
            is_late = job.is_overdue and not job.done.done()
            is_waiting = not is_late and not job.done.done()
            if is_waiting:
                job.answers.append((answer, finish))
        if is_late:
            answer.set_exception(self._too_late(job))
        elif not is_waiting:
            self._hand_out(job, answer, finish)
        return answer

    def shutdown(self) -> None:
        """Take nothing more; what is not being compiled yet fails with `EngineStoppedError`. Idempotent, never waits."""
        with self._lock:
            self._is_stopped = True
            jobs = list(self._jobs.values())
            self._jobs.clear()
            for _ in range(self._num_workers):
                self._queue.put(None)
        for job in jobs:
            if job.done.cancel():
                self._settle(job)

    def _start_worker(self) -> None:
        if self._num_workers < self._max_workers:
            self._num_workers += 1
            self._num_started += 1
            name = f"grammar-{self._num_started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _drop_oldest(self) -> None:
        """Forget finished jobs beyond the limit; one that is being compiled stays, so that nobody compiles it twice."""
        surplus = len(self._jobs) - self._max_cached
        for key in [key for key, job in self._jobs.items() if job.done.done()][: max(surplus, 0)]:
            del self._jobs[key]

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            if not job.done.set_running_or_notify_cancel():
                continue
            try:
                compiled = self._compile(job)
            except GrammarError as error:
                job.done.set_exception(error)
            except Exception as error:  # noqa: BLE001 - whoever waits on the future gets it; the thread must go on
                with self._lock:
                    self._jobs.pop(job.constraint, None)
                job.done.set_exception(error)
            else:
                job.done.set_result(compiled)
            self._settle(job)
            if job.is_overdue:
                with self._lock:
                    self._num_overdue -= 1
                if job.is_replaced:
                    return

    def _compile(self, job: _Job) -> Any:
        with self._backend_lock:
            if self._backend is None:
                self._backend = self._make_backend()
        timer = None
        if self._timeout_s is not None:
            timer = self._make_timer(self._timeout_s, lambda: self._pass_deadline(job))
            timer.daemon = True
            timer.start()
        try:
            return self._backend.compile(job.constraint)
        except ValueError as error:  # every error of the grammar package is one; it names the place
            raise GrammarError(f"compiling the {job.constraint.kind} of a request: {error}") from error
        finally:
            if timer is not None:
                timer.cancel()

    def _pass_deadline(self, job: _Job) -> None:
        """On a timer's thread: nobody waits for `job` any longer, and another worker takes the place of its one."""
        with self._lock:
            if job.done.done() or self._is_stopped:
                return
            job.is_overdue = True
            self._num_overdue += 1
            if self._num_overdue <= MAX_OVERDUE:
                job.is_replaced = True
                self._num_workers -= 1
                if not self._queue.empty():
                    self._start_worker()
            answers, job.answers = job.answers, []
        for answer, _ in answers:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(self._too_late(job))

    def _too_late(self, job: _Job) -> GrammarError:
        return GrammarError(
            f"compiling the {job.constraint.kind} of a request: not done after grammar_compile_timeout_s={self._timeout_s}; "
            "simplify it, raise the limit, or try again: it goes on being compiled"
        )

    def _settle(self, job: _Job) -> None:
        with self._lock:
            answers, job.answers = job.answers, []
        for answer, finish in answers:
            if answer.set_running_or_notify_cancel():
                self._hand_out(job, answer, finish)

    def _hand_out(self, job: _Job, answer: Future[GrammarCursor], finish: Callable[[Any], GrammarCursor]) -> None:
        if job.done.cancelled():
            answer.set_exception(EngineStoppedError("compiling a grammar: the engine was shut down before its turn"))
        elif (error := job.done.exception()) is not None:
            answer.set_exception(error)
        else:
            assert self._backend is not None, "a compiled grammar without a backend"
            try:
                cursor = finish(self._backend.make_cursor(job.done.result()))
            except SglangLiteError as error:  # marks that are no text
                answer.set_exception(error)
            else:
                answer.set_result(cursor)


def needs_cursor(params: SamplingParams) -> bool:
    """The text is held: by a constraint, or by a budget of thinking."""
    return params.constraint is not None or (params.thinking is not None and params.thinking_budget is not None)
