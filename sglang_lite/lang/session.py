"""One running program as the language sees it: the ops sent, their results, its end; it knows no expressions.

A session owns the op ids, the tree and the futures. Ops are kept back until a value is wanted or the body ends, so a
program without forced reads reaches the backend as one tree; after the first wait each gen or select goes out at once,
and a streaming program sends everything at once.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from weakref import WeakSet

from sglang_lite.errors import CancelledError, ProgramError, ProgramTimeoutError
from sglang_lite.lang.choices import ChoicesSamplingMethod, decide
from sglang_lite.lang.deadlines import Deadline, shared_clock
from sglang_lite.lang.event_loop import is_in_event_loop
from sglang_lite.lang.futures import OpFuture, Signal
from sglang_lite.lang.global_config import global_config
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.pool import MAX_THREADS, Lane, shared_pool
from sglang_lite.lang.summary import record
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
    OpScored,
    RequestTree,
    SelectOp,
)

logger = logging.getLogger(__name__)

enclosing_session: ContextVar[Session | None] = ContextVar("sglang_lite_session", default=None)
"""The session whose body runs here; a run inside it is cancelled with it."""

_decisions = Lane(MAX_THREADS)


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
        self.first_error: Exception | None = None
        self.body_has_ended = False
        self._tree = RequestTree()
        self._next_id = 0
        self._next_branch = 1
        self._unsent: list[Op] = []
        self._sending = threading.RLock()
        self._num_sending = 0
        self._num_open = 0
        self._undecided: dict[int, ChoicesSamplingMethod] = {}
        self._had_wait = False
        self._cancelled: Exception | None = None
        self._failed_branches: dict[int, Exception] = {}
        self._on_end: list[Callable[[], None]] = []
        self._nested: WeakSet[Session] = WeakSet()
        self._is_closed = False
        self._deadline: Deadline | None = None
        self._program = backend.open_program(self._on_event, seed=seed)
        outer = enclosing_session.get()
        if outer is not None:
            outer.adopt(self)
        if options.timeout is not None:
            self._deadline = shared_clock.set(options.timeout, self._on_timeout)

    # --- sending ---

    def add(self, build: Callable[[int], Op], method: ChoicesSamplingMethod | None = None) -> OpFuture:
        """Append the op that `build` makes of a new id; never waits.

        Args:
            method: decides a select whose method is `client`.

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
                self._undecided[future.op.id] = method
            self.signal.notify()
        if self.is_streaming or (self._had_wait and isinstance(future.op, GenOp | SelectOp)):
            self.flush()
        return future

    def _enter(self, build: Callable[[int], Op]) -> OpFuture:
        op = build(self._next_id)
        self._tree.add(op)
        self._next_id += 1
        future = self.futures[op.id] = OpFuture(op, self.signal)
        error = self._failed_branches.get(op.branch)
        if error is None:
            self._unsent.append(op)
            self._num_open += 1
        else:  # the backend was told to give this branch up
            future.error = error
            if isinstance(op, ForkOp):
                self._failed_branches.update(dict.fromkeys(op.children, error))
        return future

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
        with self.signal.changed:
            future = self.futures.get(event.op)
            if future is None:
                logger.error("program %s: got %r for an op that it does not have", self.label, event)
                return
            if future.has_ended:  # ended here already, by cancel or a failed decision
                return
            match event:
                case OpDelta(text=text):
                    future.pieces.append(text)
                case OpDone():
                    future.finish(event)
                    if global_config.verbosity >= 2:
                        sys.stderr.write(event.text)
                    self._num_open -= 1
                case OpFailed(error=error):
                    self._fail(future, error)
                case OpScored():
                    scored = event
            self.signal.notify()
        if scored is not None:
            shared_pool.submit(_decisions, lambda: self._decide(future, scored))
        elif not isinstance(event, OpDelta):
            if isinstance(event, OpDone) and isinstance(future.op, GenOp | SelectOp):
                record(event.meta)
                self._check_token_limit()
            self._settle()

    def _check_token_limit(self) -> None:
        limit = self.options.max_total_tokens
        if limit is None:
            return
        with self.signal.changed:
            metas = [f.done.meta for f in self.futures.values() if f.done and isinstance(f.op, GenOp | SelectOp)]
        total = sum((meta.get("prompt_tokens") or 0) + (meta.get("completion_tokens") or 0) for meta in metas)
        if total > limit:
            self.cancel(
                CancelledError(f"running {self.label}: {total} tokens, more than max_total_tokens={limit}; cancelled")
            )

    def _fail(self, future: OpFuture, error: Exception) -> None:
        future.error = error
        self._undecided.pop(future.op.id, None)
        self._num_open -= 1
        if self.first_error is None:
            self.first_error = error

    def _decide(self, future: OpFuture, scored: OpScored) -> None:
        op = future.op
        assert isinstance(op, SelectOp), f"scores came for op {op.id}, a {type(op).__name__}"
        with self.signal.changed:
            method = self._undecided.get(op.id)
        if method is None:  # cancelled meanwhile
            return
        try:
            index, meta = decide(method, op.choices, scored.meta)
        except Exception as error:  # noqa: BLE001 - the method is the program's own code: its error is the select's
            self._give_up(op.branch, error)
        else:
            with self.signal.changed:
                if self._undecided.pop(op.id, None) is None:
                    return
                future.decision_meta = meta
                self._enter(lambda new: DecideOp(new, op.branch, op.id, index))
            self._try_flush()
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
        with self.signal.changed:
            is_complete = self.body_has_ended and not self._undecided and not self._unsent and not self._num_sending
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

    # --- cancelling ---

    def adopt(self, nested: Session) -> None:
        """A run inside this one's body: cancelled with it."""
        with self.signal.changed:
            self._nested.add(nested)
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
            if self.first_error is None:
                self.first_error = error
            self._cancelled = self.cancelled_by(error) if was_raised else error
            had_open = self._num_open > 0
            nested = list(self._nested)
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
            self._failed_branches[branch] = error
            for child, parent in self._tree.parents.items():  # parents come before their children
                if parent in self._failed_branches:
                    self._failed_branches.setdefault(child, error)
            self._unsent = [op for op in self._unsent if op.branch not in self._failed_branches]
            for future in self.futures.values():
                if not future.has_ended and future.op.branch in self._failed_branches:
                    self._fail(future, error)
            self.signal.notify()
        self._program.cancel((branch,))

    def _on_interrupt(self) -> None:
        self.cancel(CancelledError(f"running {self.label}: interrupted by Ctrl-C"))

    def _on_timeout(self) -> None:
        self.cancel(
            ProgramTimeoutError(f"running {self.label}: not done after timeout={self.options.timeout} s; cancelled")
        )
