"""One running program as the language sees it: the ops sent, their results, its end; it knows no expressions.

A session owns the op ids, the tree and the futures. Ops are kept back until a value is wanted or the body ends, so a
program without forced reads reaches the backend as one tree; after the first wait each gen or select goes out at once,
and a streaming program sends everything at once.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from sglang_lite.errors import CancelledError, ProgramError, ProgramTimeoutError, SglangLiteError
from sglang_lite.lang.choices import ChoicesSamplingMethod, decide
from sglang_lite.lang.deadlines import Deadline, shared_clock
from sglang_lite.lang.event_loop import is_in_event_loop
from sglang_lite.lang.faults import Faults
from sglang_lite.lang.futures import OpFuture, Signal
from sglang_lite.lang.global_config import global_config
from sglang_lite.lang.nested import NestedRuns
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.pool import MAX_THREADS, Lane, shared_pool
from sglang_lite.lang.questions import Questions
from sglang_lite.lang.routes import RoutedProgram
from sglang_lite.lang.seeds import seed_of
from sglang_lite.lang.summary import record
from sglang_lite.lang.typed.attempts import Attempts
from sglang_lite.records.recorder import RunRecorder
from sglang_lite.request_tree import (
    Backend,
    DecideOp,
    Event,
    ForkOp,
    GenOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    Program,
    RefuseOp,
    RequestTree,
    SelectOp,
)

logger = logging.getLogger(__name__)

enclosing_session: ContextVar[Session | None] = ContextVar("sglang_lite_session", default=None)
"""The session whose body runs here; a run inside it is cancelled with it."""

_decisions = Lane(MAX_THREADS)


@runtime_checkable
class TurnTaker(Protocol):
    """A backend's program that says whether it wants whole turns at a time."""

    @property
    def waits_for_turns(self) -> bool:
        """True: ops go out at waits and at the end alone."""
        ...


def _takes_turns(program: object) -> bool:
    return isinstance(program, TurnTaker) and program.waits_for_turns


class Session:
    """A program between its first op and its last event.

    Args:
        label: name of the function, for messages.
        stream: ask for pieces of text as they come, and send every op at once.
        seed: see `RunOptions.seed`.
        is_traced: the body runs on symbols, and no op will ever be done.
    """

    def __init__(
        self,
        backend: Backend,
        label: str,
        options: RunOptions,
        *,
        stream: bool,
        seed: int | None,
        is_traced: bool = False,
    ) -> None:
        self.label = label
        self.is_traced = is_traced
        self.options = options
        self.is_streaming = stream
        self.runs_async = False
        self.signal = Signal(self._before_wait, self._on_interrupt, self._check_blocking)
        self.futures: dict[int, OpFuture] = {}
        self._faults = Faults()
        self.body_has_ended = False
        self._tree = RequestTree()
        self._next_branch = 1
        self._unsent: list[Op] = []
        self._sending = threading.RLock()
        self._num_sending = 0
        self._num_open = 0
        self._questions = Questions()
        self._had_wait = False
        self._cancelled: Exception | None = None
        self._on_end: list[Callable[[], None]] = []
        self._is_closed = False
        self._deadline: Deadline | None = None
        outer = enclosing_session.get()
        if seed is None and outer is not None:
            seed = outer.next_nested_seed()
        self._program: Program = backend.open_program(self._on_event, seed=seed)
        self.seed = seed_of(self._program, seed)
        self._nested: NestedRuns[Session] = NestedRuns(self.seed)
        self.recorder: RunRecorder | None = None
        if options.record or (outer is not None and outer.recorder is not None):
            self.recorder = RunRecorder(label, type(backend).__name__, lambda: _model_of(backend), self.seed)
        if outer is not None:
            outer.adopt(self)
        if options.timeout is not None:
            self._deadline = shared_clock.set(options.timeout, self._on_timeout)

    # --- sending ---

    def add(
        self,
        build: Callable[[int], Op],
        method: ChoicesSamplingMethod | None = None,
        attempts: Attempts | None = None,
    ) -> OpFuture:
        """Append the op that `build` makes of a new id; never waits.

        Args:
            method: decides a select whose method is `client`.
            attempts: judges what a gen gives.

        Raises:
            ProgramError: the op has no meaning here, or the program has ended.
            CancelledError: the program was cancelled.
        """
        with self.signal.changed:
            if self._cancelled is not None:
                raise self._cancelled
            if self.body_has_ended:
                raise ProgramError(
                    f"appending to a state of {self.label}: its run has ended; append inside the function, "
                    "or start another run from s.text()"
                )
            future = self._enter(build)
            if method is not None:
                self._questions.undecided[future.op.id] = method
            future.attempts = attempts
            if isinstance(future.op, GenOp) and future.op.hold and not future.has_ended:
                self._questions.held.add(future.op.id)
            self.signal.notify()
        is_due = self._had_wait and isinstance(future.op, GenOp | SelectOp) and not _takes_turns(self._program)
        if self.is_streaming or is_due:
            self.flush()
        return future

    def _enter(self, build: Callable[[int], Op]) -> OpFuture:
        op = build(len(self._tree.ops))
        self._tree.add(op)
        future = self.futures[op.id] = OpFuture(op, self.signal)
        if self.recorder is not None:
            self.recorder.sent(op)
        error = self._faults.branches.get(op.branch)
        if error is None:
            self._unsent.append(op)
            self._num_open += 1
        else:  # the backend was told to give this branch up
            future.error = error
            if self.recorder is not None:
                self.recorder.failed(op, error)
            if isinstance(op, ForkOp):
                self._faults.branches.update(dict.fromkeys(op.children, error))
        return future

    @property
    def first_error(self) -> Exception | None:
        """The first error of an op or of the program; those of branches that were given up on purpose do not count."""
        with self.signal.changed:
            return self._faults.first

    def excuse(self, branches: Sequence[int]) -> None:
        """These branches and what is forked from them may fail: a race or a rewind is about to end them."""
        with self.signal.changed:
            found = set(branches)
            for child, parent in self._tree.parents.items():  # parents come before their children
                if parent in found:
                    found.add(child)
            self._faults.excuse(found)

    @property
    def tree(self) -> RequestTree:
        """All ops so far."""
        return self._tree

    def new_branches(self, count: int) -> tuple[int, ...]:
        """Ids for `count` fork children."""
        with self.signal.changed:
            first = self._next_branch
            self._next_branch += count
        return tuple(range(first, first + count))

    def route(self, branch: int, backend: Backend, history: Sequence[OpFuture]) -> None:
        """The new fork child `branch`, whose fork is still to be added, runs on `backend`, after this history."""
        seed = self.next_nested_seed()
        with self._sending:
            routed = self._program
            if not isinstance(routed, RoutedProgram):
                routed = RoutedProgram(routed, self._tree, self.futures, self._on_event, self._give_up)
                self._program = routed
            routed.add(branch, backend.open_program(self._on_event, seed=seed), history)

    def joins_text(self, op: int, futures: Sequence[OpFuture]) -> None:
        """The join `op`, which is about to be sent, appends the texts of these ops; matters over several backends."""
        if isinstance(self._program, RoutedProgram):
            self._program.joins_text(op, futures)

    def flush(self) -> None:
        """Hand the backend what was kept back. If it refuses, all open ops fail with its error, which is raised."""
        with self._sending:
            with self.signal.changed:
                ops, self._unsent = self._unsent, []
                self._num_sending += bool(ops)
            if not ops:
                return
            try:
                self._program.append(ops)
            except BaseException as error:
                self._end_open(error if isinstance(error, Exception) else self.cancelled_by(error))
                raise
            finally:
                with self.signal.changed:
                    self._num_sending -= 1
                self._settle()

    def _before_wait(self) -> None:
        self._had_wait = True
        self.flush()

    @property
    def is_in_async_body(self) -> bool:
        """True inside the `async def` body of this session, whose event loop must not be blocked."""
        return self.runs_async and enclosing_session.get() is self and is_in_event_loop()

    def _check_blocking(self) -> None:
        if self.is_in_async_body:
            raise ProgramError(
                f"waiting in the async def body {self.label}: this would block every program of its event loop; write "
                "await s.get(name) for a value, await s.wait() before s.text() and the like"
            )

    # --- receiving ---

    def _on_event(self, event: Event) -> None:
        scored: OpScored | None = None
        judged: OpDone | OpHeld | None = None
        with self.signal.changed:
            future = self._open_future(event)
            if future is None:
                return
            self._record(event)
            match event:
                case OpDelta(text=text):
                    future.pieces.append(text)
                case OpHeld():
                    judged = event
                case OpDone() if future.needs_judging:
                    judged = event
                case OpDone():
                    self._finish(future, event)
                case OpFailed(error=error):
                    self._fail(future, self._questions.cause_of(error))
                case OpScored():
                    scored = event
            self.signal.notify()
        if scored is not None:
            shared_pool.submit(_decisions, lambda: self._decide(future, scored))
        elif judged is not None:
            shared_pool.submit(_decisions, lambda: self._judge(future, judged))
        elif not isinstance(event, OpDelta):
            self._after_end(future, event)

    def _after_end(self, future: OpFuture, event: Event) -> None:
        """An op has ended."""
        if isinstance(event, OpDone) and isinstance(future.op, GenOp | SelectOp):
            record(event.meta)
            self._check_token_limit()
        self._settle()

    def _open_future(self, event: Event) -> OpFuture | None:
        """What `event` is about; None: ended here already, by cancel or a failed decision."""
        future = self.futures.get(event.op)
        if future is None:
            logger.error("program %s: got %r for an op that it does not have", self.label, event)
            return None
        return None if future.has_ended else future

    def _check_token_limit(self) -> None:
        limit = self.options.max_total_tokens
        if limit is None:
            return
        with self.signal.changed:
            futures = [f for f in self.futures.values() if isinstance(f.op, GenOp | SelectOp)]
            metas = [meta for f in futures for meta in f.metas]
        total = sum((meta.get("prompt_tokens") or 0) + (meta.get("completion_tokens") or 0) for meta in metas)
        if total > limit:
            self.cancel(
                CancelledError(f"running {self.label}: {total} tokens, more than max_total_tokens={limit}; cancelled")
            )

    def _finish(self, future: OpFuture, done: OpDone) -> None:
        future.finish(done)
        self._questions.forget(future.op.id)
        if global_config.verbosity >= 2:
            sys.stderr.write(done.text)
        self._num_open -= 1

    def _record(self, event: Event) -> None:
        if self.recorder is not None and not isinstance(event, OpFailed):  # `_fail` records it
            self.recorder.take(event)

    def _fail(self, future: OpFuture, error: Exception) -> None:
        future.error = error
        self._questions.forget(future.op.id)
        self._num_open -= 1
        if self.recorder is not None:
            self.recorder.failed(future.op, error)
        self._faults.note(future.op.branch, error)

    def _decide(self, future: OpFuture, scored: OpScored) -> None:
        op = future.op
        assert isinstance(op, SelectOp), f"scores came for op {op.id}, a {type(op).__name__}"
        with self.signal.changed:
            method = self._questions.undecided.get(op.id)
        if method is None:  # cancelled meanwhile
            return
        try:
            index, meta = decide(method, op.choices, scored.meta)
        except Exception as error:  # noqa: BLE001 - the method is the program's own code: its error is the select's
            self._give_up(op.branch, error)
        else:
            with self.signal.changed:
                if self._questions.undecided.pop(op.id, None) is None:
                    return
                future.decision_meta = meta
                self._enter(lambda new: DecideOp(new, op.branch, op.id, index))
            self._try_flush()
        self._settle()

    def _judge(self, future: OpFuture, result: OpDone | OpHeld) -> None:
        """Find the value in a gen's result; a held one gets its answer. Validators may be the program's own code."""
        op, attempts = future.op, future.attempts
        assert isinstance(op, GenOp) and attempts is not None, f"a result to judge came for op {op}"
        if future.has_ended:  # cancelled meanwhile
            return
        value = result.text if isinstance(result, OpHeld) else result.value or ""
        is_good = attempts.judge(op, value, result.meta)
        with self.signal.changed:
            if future.has_ended:
                return
            if isinstance(result, OpHeld):
                if op.id in self._questions.held:
                    future.decision_meta = {"attempts": len(attempts.tries), "tries": list(attempts.tries)}
                    answer = self._enter(lambda new: attempts.next_op(op, new)).op
                    if isinstance(answer, RefuseOp) and attempts.error is not None:
                        self._questions.refuse(answer.message, attempts.error)
            elif is_good:
                self._finish(future, result)
            else:
                assert attempts.error is not None, f"op {op.id}: its result is not good, without an error"
                self._fail(future, attempts.error)
            self.signal.notify()
        if isinstance(result, OpHeld):
            self._try_flush()
        if isinstance(result, OpDone) or not is_good:
            record(result.meta)
        self._check_token_limit()
        self._settle()

    def _try_flush(self) -> None:
        try:
            self.flush()
        except Exception:  # flush has put it on every open op; nobody here could handle it
            logger.debug("program %s: the backend took no decision", self.label, exc_info=True)

    # --- the end ---

    @property
    def is_open(self) -> bool:
        """True while ops can be added."""
        return self._cancelled is None and not self.body_has_ended

    @property
    def has_ended(self) -> bool:
        """True when the body has ended and no op is open."""
        return self.body_has_ended and self._num_open == 0

    def end_body(self, error: BaseException | None = None) -> None:
        """The body has ended; open ops still finish, unless it ended by an error: then they are cancelled."""
        if error is not None:
            self.cancel(error if isinstance(error, Exception) else self.cancelled_by(error), was_raised=True)
        with self.signal.changed:
            self.body_has_ended = True
            self.signal.notify()
        self._try_flush()
        self._settle()

    def _settle(self) -> None:
        """Close the program once nothing can be appended any more; tell that it has ended."""
        if isinstance(self._program, RoutedProgram):
            self._program.review()
        with self.signal.changed:
            waits = bool(self._questions or self._unsent or self._num_sending)
            is_complete = self.body_has_ended and not waits
            will_close = is_complete and not self._is_closed
            self._is_closed = self._is_closed or will_close
            callbacks: list[Callable[[], None]] = []
            if self.has_ended:
                callbacks, self._on_end = self._on_end, []
                deadline, self._deadline = self._deadline, None
                if deadline is not None:
                    shared_clock.call_off(deadline)
        if will_close:
            self._program.close()
        for callback in callbacks:
            callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback`, which must be quick and not raise, once the session has ended."""
        with self.signal.changed:
            self._on_end.append(callback)
        self._settle()

    def is_op_error(self, error: Exception) -> bool:
        """True when `error` is what an op, or the program as a whole, failed with; False for one of the body's own."""
        return error is self._cancelled or any(future.error is error for future in self.futures.values())

    def wait_for_end(self) -> None:
        """Wait until the body has ended and no op is open."""
        self.signal.wait_for(lambda: self.has_ended)

    def next_nested_seed(self) -> int | None:
        """The seed of the next run inside this one's body; None where this one has none."""
        with self.signal.changed:
            return self._nested.next_seed()

    # --- cancelling ---

    def adopt(self, nested: Session) -> None:
        """A run inside this one's body: cancelled with it."""
        with self.signal.changed:
            self._nested.add(nested)
            if self.recorder is not None and nested.recorder is not None:
                self.recorder.nested.append(nested.recorder)
            cancelled = self._cancelled
        if cancelled is not None:
            nested.cancel(cancelled)

    def cancel(self, error: Exception | None = None, *, was_raised: bool = False) -> None:
        """End all open ops with `error` at once, tell the backend to stop them, and refuse further ones.

        Args:
            error: default: a `CancelledError`.
            was_raised: `error` came out of the body: open ops end as cancelled because of it.
        """
        error = error or CancelledError(f"running {self.label}: the program was cancelled")
        with self.signal.changed:
            if self._cancelled is not None or self.has_ended:
                return
            self._faults.note(None, error)
            if self.recorder is not None:
                self.recorder.note_error(error)
            self._cancelled = self.cancelled_by(error) if was_raised else error
            had_open = self._num_open > 0
            nested = self._nested.alive()
        self._end_open(self._cancelled)
        if had_open:
            self._program.cancel()
        for inner in nested:
            inner.cancel(self._cancelled)
        self._settle()

    def cancelled_by(self, error: BaseException) -> CancelledError:
        """The error of ops that are cancelled because of `error`."""
        cancelled = CancelledError(f"running {self.label}: cancelled because of {error!r}")
        cancelled.__cause__ = error
        return cancelled

    def _end_open(self, error: Exception) -> None:
        with self.signal.changed:
            self._unsent = []
            for future in self.futures.values():
                if not future.has_ended:
                    self._fail(future, error)
            self.signal.notify()

    def _give_up(self, branch: int, error: Exception) -> None:
        """End a branch and what was forked from it: open ops fail here, further ones will at once."""
        with self.signal.changed:
            self._faults.branches[branch] = error
            for child, parent in self._tree.parents.items():  # parents come before their children
                if parent in self._faults.branches:
                    self._faults.branches.setdefault(child, error)
            self._unsent = [op for op in self._unsent if op.branch not in self._faults.branches]
            for future in self.futures.values():
                if not future.has_ended and future.op.branch in self._faults.branches:
                    self._fail(future, error)
            self.signal.notify()
        self._program.cancel((branch,))

    def _on_interrupt(self) -> None:
        self.cancel(CancelledError(f"running {self.label}: interrupted by Ctrl-C"))

    def _on_timeout(self) -> None:
        self.cancel(
            ProgramTimeoutError(f"running {self.label}: not done after timeout={self.options.timeout} s; cancelled")
        )


def _model_of(backend: Backend) -> str | None:
    """What the backend calls its model; None where it has none, or has ended."""
    try:
        model = backend.get_server_info().get("model_path")
    except SglangLiteError:
        return None
    return None if model is None else str(model)
