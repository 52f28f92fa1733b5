"""A run whose reads give references: whole programs reach the backend at once; what asks for more waits as ever."""

from __future__ import annotations

from typing import Any, cast

from sglang_lite.errors import SglangLiteError
from sglang_lite.lang.branch import Branch
from sglang_lite.lang.referring import as_symbol
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.symbols import SglLazyValue, caller_place
from sglang_lite.lang.values import GatherValue, OpValue, PlainValue, Value
from sglang_lite.request_tree import GenOp


class LazyProgramState(ProgramState):
    """The body's view in a lazy run: `s[name]` can be appended at once; the first read that has to wait is noted.

    Args:
        outer: the caller's view, whose `open_because` says where the tree was left open.
    """

    def __init__(self, branch: Branch, outer: ProgramState) -> None:
        super().__init__(branch)
        self._outer = outer

    def view(self, branch: Branch) -> LazyProgramState:
        """A state of the same run on another branch."""
        return LazyProgramState(branch, self._outer)

    def get_var(self, name: str) -> Any:
        """The value where the program set it, else something to append that waits when it is asked for more.

        Raises:
            KeyError: there is no such name.
        """
        return self._lazy(self.branch.variables[name], name)

    def _lazy(self, value: Value, name: str) -> Any:
        if isinstance(value, PlainValue):
            return value.get()
        if isinstance(value, GatherValue):
            return [self._lazy(part, f"{name}[{i}]") for i, part in enumerate(value.parts)]
        is_list = isinstance(value, OpValue) and isinstance(value.future.op, GenOp) and value.future.op.params.n > 1
        if not is_list:
            try:
                return SglLazyValue(name, as_symbol(value, self.branch.session, name), value.get, self._note_wait)
            except SglangLiteError:  # roles in it, or no text: it cannot be referred to
                pass
        self._note_wait(f"reading the value {name!r}, which is no text of one op")
        return value.get()

    async def _get(self, name: str) -> Any:
        """Wait for the value; it is plain from then on.

        Raises:
            KeyError, Exception: as in any run.
        """
        value = self.branch.variables[name]
        self._note_wait(f"awaiting the value {name!r}")
        await self._wait_for_ops(value.ops())
        return value.get()

    def get_text(self, name: str) -> Any:
        """As in any run: waits."""
        self._note_wait(f"reading the text of {name!r}")
        return super().get_text(name)

    def get_meta_info(self, name: str) -> Any:
        """As in any run: waits."""
        self._note_wait(f"reading what was reported about {name!r}")
        return super().get_meta_info(name)

    def error(self) -> Exception | None:
        """As in any run: waits."""
        self._note_wait("waiting for the state")
        return super().error()

    def _note_wait(self, what: str) -> None:
        if self._outer.open_because is None:
            self._outer.leave_open(f"{caller_place()}: {what}")


def settled(value: Any) -> Any:
    """What a body returned, once everything is done: values in place of references, in lists and dicts, too.

    One that failed stays a reference, which raises its error when it is read.
    """
    if isinstance(value, SglLazyValue):
        try:
            return value.read()
        except Exception:  # noqa: BLE001 - the error of an op, whatever it is, belongs to whoever reads the value
            return value
    if isinstance(value, list):
        return [settled(item) for item in cast("list[Any]", value)]
    if type(value) is tuple:
        return tuple(settled(item) for item in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        return {key: settled(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value
