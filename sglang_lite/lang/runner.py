"""One run: a body on a new session, in the caller's thread or, streaming, in one of its own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeGuard, runtime_checkable

from sglang_lite import env
from sglang_lite.errors import ProgramError
from sglang_lite.lang.backends.registry import backend_scope
from sglang_lite.lang.backends.remote import RuntimeEndpoint
from sglang_lite.lang.backends.strict import StrictBackend
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.event_loop import is_in_event_loop, shared_loop
from sglang_lite.lang.lazy import LazyProgramState, settled
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.pool import MAX_THREADS, Lane, shared_pool
from sglang_lite.lang.sampling import RunDefaults
from sglang_lite.lang.session import Session, enclosing_session
from sglang_lite.lang.state import ProgramState
from sglang_lite.request_tree import Backend, ChatBackend


@runtime_checkable
class SpeculatingBackend(Protocol):
    """A backend whose calls can write ahead: several gens of one turn from one call."""

    def with_speculation(self, num_tokens: int | None) -> Backend:
        """What programs run on whose calls write `num_tokens` ahead; None: this backend."""
        ...


def _speculates(backend: Backend) -> TypeGuard[SpeculatingBackend]:
    return issubclass(type(backend), SpeculatingBackend)  # remembered, which `isinstance` of a protocol is not


def _knows_chats(backend: Backend) -> TypeGuard[ChatBackend]:
    return issubclass(type(backend), ChatBackend)


def speculating(backend: Backend, num_tokens: int | None) -> Backend:
    """The backend for a program with `num_api_spec_tokens`; without a use there it changes nothing."""
    return backend.with_speculation(num_tokens) if _speculates(backend) else backend


def prepared(backend: Backend, num_tokens: int | None) -> Backend:
    """What a program runs on: a hosted API with its `num_api_spec_tokens`, any other backend as `SGLANG_LITE_COMPAT` says.

    A backend that was given one of SGLang's templates runs like SGLang, too.
    """
    if _speculates(backend):
        return backend.with_speculation(num_tokens)
    if isinstance(backend, StrictBackend):
        return backend
    compat = env.compat()
    name = backend.chat_template_name if isinstance(backend, RuntimeEndpoint) else None
    if compat is None and name is None:
        return backend
    return StrictBackend(backend, name or (compat or "").partition(":")[2] or None)


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments and everything that its run needs to know. Arguments are never changed."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    backend: Backend
    defaults: RunDefaults = field(default_factory=RunDefaults)
    options: RunOptions = field(default_factory=RunOptions)
    is_lazy: bool = False

    @property
    def label(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__name__", repr(self.function))

    def open(self, *, stream: bool = False, seed: int | None = None) -> ProgramState:
        """A new session for this call, as the caller's view of its state.

        Args:
            seed: used in place of the one of the options.
        """
        seed = self.options.seed if seed is None else seed
        session = Session(self.backend, self.label, self.options, stream=stream, seed=seed)
        defaults = self.defaults
        if _knows_chats(self.backend):
            defaults = replace(defaults, chat=self.backend.chat_format())
        return ProgramState(Branch(session, 0, defaults), is_outer=True)

    def run_body(self, outer: ProgramState) -> None:
        """Run the function on the body's view; `outer` gets its return value.

        Raises:
            BaseException: what the function raised; the session was cancelled because of it.
        """
        session = outer.branch.session
        token = enclosing_session.set(session)
        try:
            with backend_scope(self.backend):
                outer.ret_value = self.function(self._view(outer), *self.args, **self.kwargs)
        except BaseException as error:
            session.end_body(error)
            raise
        else:
            session.end_body()
        finally:
            enclosing_session.reset(token)

    def _view(self, outer: ProgramState) -> ProgramState:
        """What the body gets as `s`."""
        return LazyProgramState(outer.branch, outer) if self.is_lazy else ProgramState(outer.branch)

    def settle(self, outer: ProgramState) -> None:
        """After the end: what a lazy body returned is values, not references."""
        if self.is_lazy:
            outer.ret_value = settled(outer.ret_value)

    @property
    def is_async(self) -> bool:
        """True when the function is an `async def`."""
        return inspect.iscoroutinefunction(self.function)

    async def run_body_async(self, outer: ProgramState) -> None:
        """As `run_body`, for an `async def` function, on the running event loop."""
        session = outer.branch.session
        session.runs_async = True
        token = enclosing_session.set(session)
        try:
            with backend_scope(self.backend):
                outer.ret_value = await self.function(self._view(outer), *self.args, **self.kwargs)
        except BaseException as error:
            session.end_body(error)
            raise
        else:
            session.end_body()
        finally:
            enclosing_session.reset(token)

    async def run_body_async_quietly(self, outer: ProgramState) -> None:
        """As `run_body_quietly`, for an `async def` function."""
        try:
            await self.run_body_async(outer)
        except BaseException:  # noqa: BLE001 - as in `run_body_quietly`
            return

    def start_body(self, outer: ProgramState) -> None:
        """Run the body apart from the caller: an `async def` on the event loop of the process, another on a thread."""
        if self.is_async:
            shared_loop.start(lambda: self.run_body_async_quietly(outer))
            return
        context = contextvars.copy_context()
        threading.Thread(
            target=lambda: context.run(self.run_body_quietly, outer), name="sglang_lite-stream", daemon=True
        ).start()

    def run_body_quietly(self, outer: ProgramState) -> None:
        """As `run_body`, at the edge of a thread: the error is kept on the state, whose readers meet it."""
        try:
            self.run_body(outer)
        except BaseException:  # noqa: BLE001 - `run_body` has put it on the session; this thread has nobody to tell
            return


def run(call: Call) -> ProgramState:
    """Run to the end of the last op.

    Raises:
        BaseException: what the body raised, else (unless errors are kept on the state) the first failed op's error.
        ProgramError: the caller is an `async def` body.
    """
    refuse_in_async_body(call)
    outer = call.open()
    session = outer.branch.session
    try:
        if call.is_async:
            _run_on_loop(call, outer)
        else:
            call.run_body(outer)
    except Exception as error:
        if not _is_kept(call, session, error):
            raise
    try:
        session.wait_for_end()
    except BaseException as error:  # Ctrl-C, wherever it struck
        session.end_body(error)
        raise
    _raise_kept(call, session)
    call.settle(outer)
    return outer


async def run_async(call: Call) -> ProgramState:
    """As `run`, without blocking the event loop: an `async def` body runs on it, another one on a thread of the pool.

    A cancelled `await` cancels the program.
    """
    outer = call.open()
    session = outer.branch.session
    try:
        if call.is_async:
            await call.run_body_async(outer)
        else:
            await _run_on_pool(call, outer)
    except Exception as error:
        if not _is_kept(call, session, error):
            raise
    try:
        await session.signal.wait_for_async(lambda: session.has_ended)
    except BaseException as error:
        session.cancel(session.cancelled_by(error))
        raise
    _raise_kept(call, session)
    call.settle(outer)
    return outer


def run_streaming(call: Call) -> ProgramState:
    """Start the body apart from the caller and return at once; readers of the state wait and meet its errors."""
    outer = call.open(stream=True)
    call.start_body(outer)
    return outer


def refuse_in_async_body(call: Call) -> None:
    """A run that waits has no place inside an `async def` body.

    Raises:
        ProgramError: says what to write instead.
    """
    session = enclosing_session.get()
    if session is not None and session.runs_async and is_in_event_loop():
        raise ProgramError(
            f"running {call.label} in the async def body {session.label}: this would block every program of its event "
            "loop; write await f.run_async(...)"
        )


def _run_on_loop(call: Call, outer: ProgramState) -> None:
    """An `async def` body on the event loop of the process; raises what it raised."""
    session = outer.branch.session
    outcome: list[BaseException | None] = []

    async def body() -> None:
        error: BaseException | None = None
        try:
            await call.run_body_async(outer)
        except BaseException as caught:  # noqa: BLE001 - raised by the thread that waits for the body
            error = caught
        with session.signal.changed:
            outcome.append(error)
            session.signal.notify()

    shared_loop.start(body)
    try:
        session.signal.wait_for(lambda: bool(outcome))
    except BaseException as error:  # Ctrl-C
        session.end_body(error)
        raise
    if outcome[0] is not None:
        raise outcome[0]


_bodies = Lane(MAX_THREADS)


async def _run_on_pool(call: Call, outer: ProgramState) -> None:
    """The body on a thread of the pool; raises what it raised."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()
    context = contextvars.copy_context()

    def tell(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def job() -> None:
        error: BaseException | None = None
        try:
            context.run(call.run_body, outer)
        except BaseException as caught:  # noqa: BLE001 - raised by the task that awaits the run
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, error)

    shared_pool.submit(_bodies, job)
    try:
        error = await ended
    except BaseException as cancelled:
        outer.branch.session.cancel(outer.branch.session.cancelled_by(cancelled))
        raise
    if error is not None:
        raise error


def _is_kept(call: Call, session: Session, error: Exception) -> bool:
    """True for a failed op's error that the body met by reading, where errors are kept on the state.

    Any other error that comes out of a body is the body's own and always raised.
    """
    return call.options.on_error == "state" and error is session.first_error and session.is_op_error(error)


def _raise_kept(call: Call, session: Session) -> None:
    if session.first_error is not None and call.options.on_error == "raise":
        raise session.first_error
