"""One run: a body on a new session, in the caller's thread or, streaming, in one of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_lite.lang.backends.registry import backend_scope
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.sampling import RunDefaults
from sglang_lite.lang.session import Session, enclosing_session
from sglang_lite.lang.state import ProgramState
from sglang_lite.request_tree import Backend


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments and everything that its run needs to know. Arguments are never changed."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    backend: Backend
    defaults: RunDefaults = field(default_factory=RunDefaults)
    options: RunOptions = field(default_factory=RunOptions)

    def open(self, *, stream: bool = False, seed: int | None = None) -> ProgramState:
        """A new session for this call, as the caller's view of its state.

        Args:
            seed: used in place of the one of the options.
        """
        label = getattr(self.function, "__name__", repr(self.function))
        seed = self.options.seed if seed is None else seed
        session = Session(self.backend, label, self.options, stream=stream, seed=seed)
        return ProgramState(Branch(session, 0, self.defaults), is_outer=True)

    def run_body(self, outer: ProgramState) -> None:
        """Run the function on the body's view; `outer` gets its return value.

        Raises:
            BaseException: what the function raised; the session was cancelled because of it.
        """
        session = outer.branch.session
        token = enclosing_session.set(session)
        try:
            with backend_scope(self.backend):
                outer.ret_value = self.function(ProgramState(outer.branch), *self.args, **self.kwargs)
        except BaseException as error:
            session.end_body(error)
            raise
        else:
            session.end_body()
        finally:
            enclosing_session.reset(token)

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
    """
    outer = call.open()
    session = outer.branch.session
    try:
        call.run_body(outer)
    except Exception as error:
        # A failed op's error that the body met by reading is the op's; any other is the body's own and always raised.
        if not (call.options.on_error == "state" and error is session.first_error and session.is_op_error(error)):
            raise
    try:
        session.wait_for_end()
    except BaseException as error:  # Ctrl-C, wherever it struck
        session.end_body(error)
        raise
    if session.first_error is not None and call.options.on_error == "raise":
        raise session.first_error
    return outer


def run_streaming(call: Call) -> ProgramState:
    """Start the body in a thread of its own and return at once; readers of the state wait and meet its errors."""
    outer = call.open(stream=True)
    context = contextvars.copy_context()
    threading.Thread(
        target=lambda: context.run(call.run_body_quietly, outer), name="sglang_lite-stream", daemon=True
    ).start()
    return outer
