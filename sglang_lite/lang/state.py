"""`ProgramState`: what a program author holds as `s`; a thin view of a branch."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar, overload

from sglang_lite.errors import ProgramError, RequestError, UnsupportedError
from sglang_lite.lang.asking import TokenCount, confidence_in, token_count
from sglang_lite.lang.backends.registry import as_backend, backend_scope
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.group import ProgramStateGroup
from sglang_lite.lang.ir import SglAppended, SglExpr, role_block
from sglang_lite.lang.marks import Mark
from sglang_lite.lang.messages import read_messages
from sglang_lite.lang.reasoning import REASONING_SUFFIX, ThinkingValue
from sglang_lite.lang.streaming import iterate, iterate_async
from sglang_lite.lang.tools.values import ToolCall, result_text
from sglang_lite.lang.typed.gens import SglTypedGen
from sglang_lite.lang.value_stream import iterate_values, iterate_values_async
from sglang_lite.lang.values import OpValue, PlainValue, Value
from sglang_lite.records.record import RunRecord
from sglang_lite.records.usage import RunUsage, usage_of
from sglang_lite.request_tree import GenOp, SelectOp

T = TypeVar("T")


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
        self._open_because: str | None = None
        self._branch = branch
        self._is_outer = is_outer

    @property
    def branch(self) -> Branch:
        """The branch that this is a view of."""
        return self._branch

    @property
    def open_because(self) -> str | None:
        """Of a lazy run: file, line and reason of the first read in its body that had to wait; None: there was none."""
        return self._open_because

    def leave_open(self, reason: str) -> None:
        """The tree of the run is not known before its values; the first reason stays."""
        self._open_because = self._open_because or reason

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

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Append messages in OpenAI's form, tool calls and results included; their texts are never parsed.

        Raises:
            RequestError: one is no message; nothing is appended then.
            UnsupportedError: one has an image, a sound or the like.
            ProgramError: a turn is open.
        """
        self._branch.extend(read_messages(messages))

    def tool_result(self, call: ToolCall, value: Any) -> None:
        """Append what a tool gave for `call` as a turn of its own: a text as it is, anything else as JSON.

        Raises:
            RequestError: `call` is no call of a gen with tools.
            ProgramError: a turn is open: close the assistant's turn first.
        """
        if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RequestError(f"appending the result of a tool: got {call!r:.200}, expected one of s[name].tool_calls")
        self.extend([{"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result_text(value)}])

    # --- fork and join ---

    def fork(
        self,
        size: int = 1,
        position_ids_offset: list[int] | None = None,
        *,
        backends: Sequence[object] | None = None,
    ) -> ProgramStateGroup[ProgramState]:
        """`size` states that go on from here, each for itself; waits for nothing.

        A name that is not known yet is inherited: reading it in a child waits for this state's op.

        Args:
            backends: where each state runs: a backend, a string that names one, or None for where this state runs. On
                another backend it begins with a copy of the text until here, as turns and text.

        Raises:
            UnsupportedError: `position_ids_offset` is given.
            RequestError: `size` is no whole number >= 0, there are not as many `backends`, or one is none.
        """
        if position_ids_offset is not None:
            raise UnsupportedError("forking: position_ids_offset is not supported; leave it out")
        if type(size) is not int or size < 0:
            raise RequestError(f"forking: got size={size!r}, expected a whole number >= 0")
        if backends is not None and len(backends) != size:
            raise RequestError(
                f"forking: got {len(backends)} backends for {size} states, expected one each (None: this one)"
            )
        found = [None if backend is None else as_backend(backend) for backend in backends or ()]
        return ProgramStateGroup([self.view(child) for child in self._branch.fork(size, found)], self._branch)

    @contextmanager
    def backend(self, backend: object) -> Generator[None]:
        """`with s.backend(b):` runs what is appended inside on `b`: a backend, or a string that names one.

        It begins there with the text until here, and goes on here with what was generated there, as text; values are
        those of this state. Programs that are run inside have `b` as their default. Waits for nothing.

        Raises:
            RequestError: it is no backend.
            ProgramError: a turn or a variable scope is begun or ended inside, but not both.
        """
        with backend_scope(backend) as found:
            outer = self._branch
            inner = self._branch = outer.fork(1, [found])[0]
            try:
                yield
            finally:
                self._branch = outer
            outer.absorb(inner)

    def copy(self) -> _Copy:
        """`with s.copy() as t:` gives a fork of one state, joined at the end of the block."""
        return _Copy(self)

    # --- going back ---

    def mark(self) -> Mark:
        """Mark this place of the state, for `rewind`; waits for nothing."""
        return self._branch.mark()

    def rewind(self, mark: Mark) -> None:
        """Take back everything that was appended here since `mark`, once it is done; waits for nothing.

        The text, the messages, an open turn and open variable scopes are what they were at the mark. Names keep what
        they mean, and values stay readable. States that were forked since then and are not joined are cancelled.

        Raises:
            ProgramError: the mark was made on another state, or was itself taken back.
        """
        self._branch.rewind(mark)

    # --- reading ---

    def num_tokens(self) -> int:
        """Wait for the number of tokens that the state has here.

        Raises:
            Exception: something appended before has failed.
        """
        return self._count().num_tokens

    def tokens_left(self) -> int | None:
        """Wait for how many more tokens fit the context; None where the backend does not know. Raises as `num_tokens`."""
        return self._count().tokens_left

    async def count(self) -> TokenCount:
        """The two numbers, without blocking the event loop. Raises as `num_tokens`."""
        future = self._branch.count()
        await self._wait_for_ops([future])
        return token_count(future)

    def _count(self) -> TokenCount:
        session = self._branch.session
        if session.is_in_async_body:
            raise ProgramError(
                f"counting tokens in the async def body {session.label}: this would block every program of its event loop; "
                "write (await s.count()).num_tokens, or .tokens_left"
            )
        return token_count(self._branch.count())

    def confidence(self, name: str) -> Any:
        """Wait for the select `name`; how probable its choice was among the choices, from 0 to 1 (a list after a join).

        The softmax of the choices' scores, which are their mean log-probabilities a token.

        Raises:
            RequestError: `name` is not a select.
            KeyError, Exception: as `get_var`.
        """
        return confidence_in(name, self._awaited(name))

    def get_var(self, name: str) -> Any:
        """Wait for the latest value of `name`: a str for gen and select (a list with `n > 1` or after a join).

        A gen with a type gives a value of it.

        Raises:
            KeyError: there is no such name.
            Exception: the error of the op that it needs, or of the program that failed before it got there.
        """
        return self._awaited(name).get()

    def _bound(self, name: str) -> Value:
        """What `name` stands for; the caller of a run waits for the name."""
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            session.signal.wait_for(lambda: name in self._branch.variables or session.body_has_ended)
        value = self._branch.variables.get(name)
        if value is not None:
            return value
        if self._is_outer and session.first_error is not None:
            raise session.first_error
        raise KeyError(name)

    def _awaited(self, name: str) -> Value:
        """As `_bound`; an `async def` body must have awaited it."""
        value, session = self._bound(name), self._branch.session
        if session.is_in_async_body and not all(future.was_awaited for future in value.ops()):
            raise ProgramError(
                f"reading s[{name!r}] in the async def body {session.label}: it was not awaited; write "
                f"await s.get({name!r})"
            )
        return value

    def get_text(self, name: str) -> Any:
        """Wait for the text of the latest value of `name`: what was generated, where `s[name]` is of another type.

        A list of texts with `n > 1` or after a join.

        Raises:
            KeyError, Exception: as `get_var`.
        """
        return self._awaited(name).text()

    @overload
    async def get(self, name: SglTypedGen[T]) -> T: ...
    @overload
    async def get(self, name: str) -> Any: ...
    async def get(self, name: Any) -> Any:
        """As `s[name]`, without blocking the event loop; from then on `s[name]` gives it in an `async def` body, too.

        Raises:
            KeyError, Exception: as `get_var`.
        """
        return await self._get(_name_of(name))

    async def _get(self, name: str) -> Any:
        """As `get`, by name."""
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            await session.signal.wait_for_async(lambda: name in self._branch.variables or session.body_has_ended)
        value = self._branch.variables.get(name)
        while value is not None and not all(future.was_awaited for future in value.ops()):
            await self._wait_for_ops(value.ops())  # of a race: first who wins, then what they have
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

    @overload
    def __getitem__(self, name: SglTypedGen[T]) -> T: ...
    @overload
    def __getitem__(self, name: str) -> Any: ...
    def __getitem__(self, name: Any) -> Any:
        return self.get_var(_name_of(name))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._branch.variables

    def get_reasoning(self, name: str) -> Any:
        """Wait for what the model thought before the answer `name`: "" where it thought nothing; a list with `n > 1`.

        In an `async def` body write `await s.get_reasoning_async(name)`.

        Raises:
            KeyError: there is no such name, or its gen did not keep thinking apart.
            Exception: the error of the gen.
        """
        return self.get_var(name + REASONING_SUFFIX)

    async def get_reasoning_async(self, name: str) -> Any:
        """As `get_reasoning`, without blocking the event loop."""
        return await self.get(name + REASONING_SUFFIX)

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

    def messages(self) -> list[dict[str, Any]]:
        """Wait for everything appended, and give the closed turns as messages in OpenAI's form.

        Messages from `extend` come back as they were; the content of other turns is their text without leading white
        space, with the calls of their tools in `tool_calls`.
        """
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

    def value_iter(self, name: str) -> Iterator[Any]:
        """The parts of the latest value of `name` as they become complete: elements of a list, `(name, value)` of an object.

        Where the gen has a type they are of the types of its parts. A value without parts comes as a whole. A value that
        may be taken back (of a gen with retries, or whose type has checks of its own) comes once it is accepted.

        Raises:
            Exception: the error of the gen, after the parts that came before it.
            RequestError: it is no value of gens of one sample each.
            KeyError: there is no such name.
        """
        return iterate_values(self._branch.session.signal, self._bound(name).ops())

    async def value_async_iter(self, name: str) -> AsyncIterator[Any]:
        """As `value_iter`, for `async for`; never blocks the event loop."""
        session = self._branch.session
        if self._is_outer and name not in self._branch.variables:
            await session.signal.wait_for_async(lambda: name in self._branch.variables or session.body_has_ended)
        async for part in iterate_values_async(session.signal, self._bound(name).ops()):
            yield part

    @property
    def _is_live(self) -> bool:
        return self._is_outer and self._branch.session.is_streaming

    def usage(self) -> RunUsage:
        """The cost of every gen and select of the run that is done by now, those of forks included; waits for nothing."""
        session = self._branch.session
        with session.signal.changed:
            futures = list(session.futures.values())
            is_over = session.has_ended
        now = time.perf_counter()
        usage = RunUsage()
        if futures:
            end = max((future.ended_s or future.sent_s for future in futures), default=now) if is_over else now
            usage.seconds = end - futures[0].sent_s
        for future in futures:
            if future.has_ended and isinstance(future.op, GenOp | SelectOp) and (metas := future.metas):
                usage.add_op(usage_of(future.op, metas, (future.ended_s or now) - future.sent_s))
        return usage

    def record(self) -> RunRecord:
        """The record of the run until now, runs inside it included; waits for nothing.

        Raises:
            ProgramError: the run keeps none.
        """
        session = self._branch.session
        if session.recorder is None:
            raise ProgramError(
                f"reading the record of {session.label}: none was kept; run it with options=RunOptions(record=True)"
            )
        return session.recorder.record()

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


def _name_of(name: Any) -> Any:
    """The name that a typed gen gives to its value; any other thing as it is.

    Raises:
        RequestError: the gen has none.
    """
    if not isinstance(name, SglTypedGen):
        return name
    if name.name is None:
        raise RequestError("reading s[gen]: the gen has no name; make it with one: gen('x', type=...)")
    return name.name
