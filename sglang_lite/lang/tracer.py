"""Runs a body on symbols: the tree of what it would append, without a backend and without a value."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang_lite.errors import SglangLiteError
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.ir import SglExpr
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.referring import as_symbol, text_symbol
from sglang_lite.lang.sampling import RunDefaults
from sglang_lite.lang.session import Session
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.symbols import SglArgument, SglTextOf, unknown_value_error
from sglang_lite.lang.tree_text import tree_text
from sglang_lite.lang.values import GatherValue, PlainValue, Value
from sglang_lite.request_tree import EventSink, Op, RequestTree, RoleBeginOp, RoleEndOp, TextOp


class TraceStop(BaseException):
    """The body asked for a value that a trace does not have; no `except Exception` of a body swallows it."""


class _Nothing:
    """A backend that does nothing, and a program on it."""

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> _Nothing:
        return self

    def append(self, ops: Sequence[Op]) -> None:
        return None

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        return None

    def close(self) -> None:
        return None

    def flush_cache(self) -> bool:
        return False

    def get_server_info(self) -> dict[str, Any]:
        return {}

    def shutdown(self) -> None:
        return None


@dataclass(slots=True)
class TraceReport:
    """How far a trace came, and the traces of the programs that the body ran.

    `open_because`: why the tree is not the whole program, with the line; None: it is.
    """

    label: str
    open_because: str | None = None
    nested: list[TracerProgramState] = field(default_factory=list["TracerProgramState"])


current_trace: ContextVar[TraceReport | None] = ContextVar("sglang_lite_trace", default=None)
"""The trace whose body runs here; a run inside it is traced, too."""


class TracerProgramState(ProgramState):
    """A state on which nothing is known: reading a name gives a symbol to append, and nothing is ever waited for.

    `tree` has all ops; `str(state)` shows them, one a line. `is_closed`: the body ran to its end; else `open_because`
    says where it stopped, and why. `nested`: the traces of the programs that it ran.
    """

    def __init__(self, branch: Branch, report: TraceReport) -> None:
        super().__init__(branch)
        self._report = report

    def view(self, branch: Branch) -> TracerProgramState:
        """A state of the same trace on another branch."""
        return TracerProgramState(branch, self._report)

    @property
    def label(self) -> str:
        """The name of the function."""
        return self._report.label

    @property
    def tree(self) -> RequestTree:
        """All ops of the program so far."""
        return self.branch.session.tree

    @property
    def is_closed(self) -> bool:
        """True when the tree is the whole program."""
        return self._report.open_because is None

    @property
    def open_because(self) -> str | None:
        """File, line and reason of the first place that needs a value; None: there was none."""
        return self._report.open_because

    @property
    def nested(self) -> list[TracerProgramState]:
        """The traces of the programs that the body ran, in order."""
        return self._report.nested

    @property
    def last_node(self) -> TracerProgramState:
        """The trace itself: SGLang prints a graph from its last node."""
        return self

    def print_graph_dfs(self) -> None:
        """Write the tree to stdout."""
        sys.stdout.write(f"{self}\n")

    def __str__(self) -> str:
        text = tree_text(self._report.label, self.tree)
        if self.open_because is not None:
            text += f"\nopen: {self.open_because}"
        return "\n\n".join([text, *map(str, self.nested)])

    def __repr__(self) -> str:
        return f"TracerProgramState({self._report.label}, {len(self.tree.ops)} ops)"

    # --- reading: symbols in place of values ---

    def get_var(self, name: str) -> Any:
        """The value where the program set it, a list after a join, and a symbol for what would be generated."""
        return self._symbol(self.branch.variables[name], name)

    def _symbol(self, value: Value, name: str) -> Any:
        if isinstance(value, PlainValue):
            return value.get()
        if isinstance(value, GatherValue):
            return [self._symbol(part, f"{name}[{i}]") for i, part in enumerate(value.parts)]
        try:
            return as_symbol(value, self.branch.session, name)
        except SglangLiteError:  # roles inside: its text cannot even be referred to
            return SglArgument(f"value of {name}")

    async def _get(self, name: str) -> Any:
        """As `s[name]`."""
        return self.get_var(name)

    def get_text(self, name: str) -> Any:
        """As `s[name]`."""
        return self.get_var(name)

    def value_iter(self, name: str) -> Iterator[Any]:
        """One symbol: the whole value."""
        yield self.get_var(name)

    async def value_async_iter(self, name: str) -> AsyncIterator[Any]:
        """One symbol: the whole value."""
        yield self.get_var(name)

    async def wait(self) -> None:
        """Nothing is waited for."""

    def get_meta_info(self, name: str) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument(f"meta_info of {name}")

    def num_tokens(self) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument("number of tokens of the state")

    def tokens_left(self) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument("tokens left of the state")

    async def count(self) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument("token count of the state")

    def confidence(self, name: str) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument(f"confidence in {name}")

    def text(self) -> Any:
        """The text as a symbol."""
        parts: list[SglExpr] = []
        for future in self.branch.futures():
            try:
                parts.append(text_symbol(future, self.branch.session, "text"))
            except SglangLiteError:
                return SglArgument("text of the state")
        return SglTextOf(parts, "the text of the state")

    def messages(self) -> Any:
        """A symbol that nothing can be asked."""
        return SglArgument("messages of the state")

    def sync(self) -> None:
        """Nothing is waited for."""

    def error(self) -> Exception | None:
        """None: nothing runs, so nothing fails."""
        return None

    def text_iter(self, var_name: str | None = None) -> Iterator[Any]:
        """One symbol: the whole text."""
        yield self.text() if var_name is None else self.get_var(var_name)

    async def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """One symbol: the whole text."""
        yield self.text() if var_name is None else self.get_var(var_name)


def trace(
    function: Callable[..., Any],
    label: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    defaults: RunDefaults | None = None,
) -> TracerProgramState:
    """Run `function` on symbols until its end, or until it needs a value that is not known.

    Raises:
        SglangLiteError: the body uses the language wrongly, whatever the values are.
    """
    session = Session(_Nothing(), label, RunOptions(), stream=False, seed=None, is_traced=True)
    report = TraceReport(label)
    state = TracerProgramState(Branch(session, 0, defaults or RunDefaults()), report)
    outer = current_trace.get()
    if outer is not None:
        outer.nested.append(state)
    tokens = (current_trace.set(report), unknown_value_error.set(TraceStop))
    try:
        state.ret_value = _finish(function(state, *args, **kwargs))
    except (SglangLiteError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a symbol may make any code of a body fail: the tree stays open there
        report.open_because = _place(error)
    finally:
        current_trace.reset(tokens[0])
        unknown_value_error.reset(tokens[1])
        session.end_body()
    return state


def _finish(result: Any) -> Any:
    """What a body returned; one that is a coroutine is run, as long as it waits for nothing."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as stop:
        return stop.value
    result.close()
    raise TraceStop("awaiting something that is not of the state")


_HERE = Path(__file__).parent


def _place(error: BaseException) -> str:
    """File, line and reason: of the innermost frame in the file of the body."""
    outside = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != _HERE]
    own = [frame for frame in outside if frame.filename == outside[0].filename]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    return where + (str(error) if isinstance(error, TraceStop) else f"{type(error).__name__}: {error}")


def symbolic_prefix(state: TracerProgramState) -> list[Op]:
    """The ops at the beginning of a trace that are known text: until the first value, argument or fork."""
    known: list[Op] = []
    for future in state.branch.futures():
        if not isinstance(future.op, TextOp | RoleBeginOp | RoleEndOp):
            break
        known.append(future.op)
    return known
