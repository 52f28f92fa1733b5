"""`ProgramState`: what a program author holds as `s`; a thin view of a branch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from sglang_lite.errors import ProgramError, RequestError, UnsupportedError
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.group import ProgramStateGroup
from sglang_lite.lang.ir import SglAppended, SglExpr, role_block
from sglang_lite.lang.reasoning import ThinkingValue
from sglang_lite.lang.streaming import iterate, iterate_async
from sglang_lite.lang.summary import UsageTotals
from sglang_lite.lang.values import OpValue, PlainValue
from sglang_lite.request_tree import GenOp, SelectOp


class _Block(AbstractContextManager[None]):
    """Appends `begin` on entering and `end` on leaving; `end` is left out once the program was cancelled."""

    def __init__(self, branch: Branch, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._branch = branch
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The error on its way out must not be replaced by one that says the program takes no more.
        if error is None or self._branch.session.is_open:
            self._end()


class _Copy(AbstractContextManager["ProgramState"]):
    """A fork of one state, joined on leaving the block without an error."""

    def __init__(self, state: ProgramState) -> None:
        self._state = state
        self._group: ProgramStateGroup[ProgramState] | None = None

    def __enter__(self) -> ProgramState:
        self._group = self._state.fork(1)
        return self._group[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._group is not None:
            self._group.join()


class ProgramState:
    """A state of a program: append with `+=`, read with `s[name]`.

    Appending never waits. Reading waits for what it needs and raises the error of what failed.

    Args:
        is_outer: this is the view of the caller of `run`, for whom a name that is not there yet may still come while
            the body runs; the body's own view never waits for its body.
    """

    def __init__(self, branch: Branch, *, is_outer: bool = False) -> None:
        self.ret_value: Any = None
        self._branch = branch
        self._is_outer = is_outer

    @property
    def branch(self) -> Branch:
        """The branch that this is a view of."""
        return self._branch

    def view(self, branch: Branch) -> ProgramState:
        """A state of the same kind on another branch."""
        return ProgramState(branch)

    # --- appending ---

    def __iadd__(self, other: Any) -> ProgramState:
        """Append a str or an expression; never waits.

        Raises:
            RequestError: it is neither, or has wrong parameters.
            ProgramError: it has no meaning here: a role in a role, a state that was joined, a run that has ended.
        """
        self.append(other)
        return self

    def append(self, value: object) -> None:
        """The same as `s += value`."""
        self._branch.submit(value)

    def _role(self, role: str, expr: Any) -> Any:
        if expr is None:
            branch = self._branch
            return _Block(branch, lambda: branch.begin_role(role), lambda: branch.end_role(role))
        nodes = role_block(role, expr)
        for node in nodes:
            self._branch.submit(node)
        return SglAppended(nodes)

    def system(self, expr: Any = None) -> Any:
        """Append a system turn; without `expr`: a context manager around one."""
        return self._role("system", expr)

    def user(self, expr: Any = None) -> Any:
        """Append a user turn; without `expr`: a context manager around one."""
        return self._role("user", expr)

    def assistant(self, expr: Any = None) -> Any:
        """Append an assistant turn; without `expr`: a context manager around one."""
        return self._role("assistant", expr)

    def var_scope(self, name: str) -> AbstractContextManager[None]:
        """`with s.var_scope("x"):` makes `s["x"]` the text that is appended inside."""
        branch = self._branch
        return _Block(branch, lambda: branch.begin_scope(name), lambda: branch.end_scope(name))

    # --- fork and join ---

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> ProgramStateGroup[ProgramState]:
        """`size` states that go on from here, each for itself; waits for nothing.

        A name that is not known yet is inherited: reading it in a child waits for this state's op.

        Raises:
            UnsupportedError: `position_ids_offset` is given.
            RequestError: `size` is no whole number >= 0.
        """
        if position_ids_offset is not None:
            raise UnsupportedError("forking: position_ids_offset is not supported; leave it out")
        if type(size) is not int or size < 0:
            raise RequestError(f"forking: got size={size!r}, expected a whole number >= 0")
        return ProgramStateGroup([self.view(child) for child in self._branch.fork(size)], self._branch)

    def copy(self) -> _Copy:
        """`with s.copy() as t:` gives a fork of one state, joined at the end of the block."""
        return _Copy(self)

    # --- reading ---

    def get_var(self, name: str) -> Any:
        """Wait for the latest value of `name`: a str for gen and select (a list with `n > 1` or after a join).

        Raises:
            KeyError: there is no such name.
            Exception: the error of the op that it needs, or of the program that failed before it got there.
        """
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            session.signal.wait_for(lambda: name in self._branch.variables or session.body_has_ended)
        value = self._branch.variables.get(name)
        if value is not None:
            if session.is_in_async_body and not all(future.was_awaited for future in value.ops()):
                raise ProgramError(
                    f"reading s[{name!r}] in the async def body {session.label}: it was not awaited; write "
                    f"await s.get({name!r})"
                )
            return value.get()
        if self._is_outer and session.first_error is not None:
            raise session.first_error
        raise KeyError(name)

    async def get(self, name: str) -> Any:
        """As `s[name]`, without blocking the event loop; from then on `s[name]` gives it in an `async def` body, too.

        Raises:
            KeyError, Exception: as `get_var`.
        """
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            await session.signal.wait_for_async(lambda: name in self._branch.variables or session.body_has_ended)
        value = self._branch.variables.get(name)
        if value is not None:
            await self._wait_for_ops(value.ops())
        return self.get_var(name)

    async def wait(self) -> None:
        """Wait for everything appended here (for the caller of a run: for its end) without blocking the event loop.

        Afterwards `s[name]`, `s.text()`, `s.messages()`, `s.get_meta_info(name)` and `s.error()` need no wait.

        Raises:
            Exception: the first error, unless the run keeps errors on the state.
        """
        session = self._branch.session
        if self._is_outer:
            await session.signal.wait_for_async(lambda: session.has_ended)
        await self._wait_for_ops(self._branch.all_ops())
        self.sync()

    async def _wait_for_ops(self, ops: list[OpFuture]) -> None:
        await self._branch.session.signal.wait_for_async(lambda: all(future.has_ended for future in ops))
        for future in ops:
            future.was_awaited = True

    def ref(self, name: str, index: int | None = None) -> SglExpr:
        """The value of `name` to append somewhere in this run, without waiting for it: `t += s.ref("x")`.

        Args:
            index: which one, where the value is a list (after a join).

        Raises:
            KeyError: there is no such name.
            RequestError: the value is no text.
        """
        return self._branch.ref(name, index)

    def set_var(self, name: str, value: Any) -> None:
        """From here on `s[name]` is `value`."""
        self._branch.bind(name, PlainValue(value))

    def __getitem__(self, name: str) -> Any:
        return self.get_var(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._branch.variables

    def get_meta_info(self, name: str) -> Any:
        """Wait for what the backend reported about `name`, a list of it after a join; None for an unknown name."""
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            session.signal.wait_for(lambda: name in self._branch.variables or session.body_has_ended)
        value = self._branch.variables.get(name)
        return None if value is None else value.meta()

    def text(self) -> str:
        """Wait for everything appended, and give the whole text, roles included."""
        self.sync()
        return "".join(self._branch.texts())

    def messages(self) -> list[dict[str, str]]:
        """Wait for everything appended, and give the closed turns as `{"role": ..., "content": ...}`."""
        self.sync()
        return self._branch.messages()

    def sync(self) -> None:
        """Wait for everything appended here (for the caller of a run: for its end).

        Raises:
            Exception: the first error, unless the run keeps errors on the state.
        """
        error = self.error()
        if error is not None and self._branch.session.options.on_error == "raise":
            raise error

    def error(self) -> Exception | None:
        """Wait for everything appended, and give the first error: of this state, of states joined to it, of the run."""
        session = self._branch.session
        if self._is_outer:
            session.wait_for_end()
            if session.first_error is not None:
                return session.first_error
        ops = self._branch.all_ops()
        for future in ops:
            future.wait()
        return next((future.error for future in ops if future.error is not None), None)

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text in pieces as it comes; with `var_name` the text of every occurrence of the name.

        In a run with `stream=True` the caller's iterator ends with the program. Without it, and inside the body, it
        ends with what is appended by now.

        Raises:
            Exception: the error of the program, after the text that came before it.
            KeyError: the name never occurred.
        """
        return iterate(self._branch, var_name, self._is_live)

    async def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """As `text_iter`, for `async for`; never blocks the event loop.

        With `return_meta_data` and a name it yields `(text, meta_info)`: the last piece of each occurrence, which may
        be empty, carries the `meta_info`, the ones before an empty dict.
        """
        wants_meta = return_meta_data and var_name is not None
        async for text, meta in iterate_async(self._branch, var_name, self._is_live):
            if wants_meta:
                yield text, meta
            elif text:
                yield text

    @property
    def _is_live(self) -> bool:
        return self._is_outer and self._branch.session.is_streaming

    def usage(self) -> UsageTotals:
        """Tokens of every gen and select of the run that is done by now, those of forks included; waits for nothing."""
        totals = UsageTotals()
        for future in list(self._branch.session.futures.values()):
            if future.done is not None and isinstance(future.op, GenOp | SelectOp):
                totals.add(future.done.meta)
        return totals

    def op_metas(self) -> list[dict[str, Any]]:
        """The `meta_info` of every gen and select of this state's text that is done, in order."""
        values = [item.value for item in self._branch.items()]
        found = [
            value.future.done
            for value in values
            if isinstance(value, OpValue) or (isinstance(value, ThinkingValue) and value.half == "answer")
        ]
        return [dict(done.meta) for done in found if done is not None]

    def cancel(self) -> None:
        """Stop the whole program of this state; what is open ends with `CancelledError`."""
        self._branch.session.cancel()

    def __repr__(self) -> str:
        self.error()  # waits; what failed is left out
        return f"ProgramState({''.join(self._branch.texts())})"
