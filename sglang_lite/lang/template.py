"""A pure program as a template: its body is run once on symbols, and each row gets the tree with its own arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from sglang_lite.errors import ProgramError, SglangLiteError
from sglang_lite.lang.branch import Item
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.ir import SglConstantText, SglExpr, flatten
from sglang_lite.lang.reasoning import ThinkingValue
from sglang_lite.lang.runner import Call
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.symbols import SglArgument, SglLazyValue, SglRef, SglSymbol, SglTextOf
from sglang_lite.lang.tracer import TracerProgramState, trace
from sglang_lite.lang.values import GatherValue, OpValue, PlainValue, ScopeValue, Value
from sglang_lite.request_tree import GenOp, RefOp, RequestTree, SelectOp

MAX_TEMPLATES = 8
"""Rows that differ in more ways than their texts do are run one by one."""

TemplateRow: TypeAlias = "tuple[Template, dict[str, str]]"


class Template:
    """What a body appends and returns, whatever the texts of its arguments are.

    Raises:
        ProgramError: the trace is not the whole program, or the program has to answer while it runs.
    """

    def __init__(self, traced: TracerProgramState) -> None:
        if traced.open_because is not None:
            raise ProgramError(f"making a template: {traced.open_because}")
        if traced.nested:
            raise ProgramError("making a template: the body runs other programs")
        for op in traced.tree.ops.values():
            if (isinstance(op, SelectOp) and op.method == "client") or (isinstance(op, GenOp) and op.hold):
                raise ProgramError(f"making a template: op {op.id}, a {type(op).__name__}, asks the program back")
        self.tree: RequestTree = traced.tree
        self._items = list(traced.branch.items())
        self._variables = dict(traced.branch.variables)
        self._returned: Any = traced.ret_value
        _Row({}, {}).check(self._items, self._variables, self._returned)

    def fill(self, state: ProgramState, arguments: Mapping[str, str]) -> None:
        """Make a fresh state what the body would have made of it, with all ops appended, and end the body."""
        session = state.branch.session
        futures: dict[int, OpFuture] = {}
        for op in self.tree.bound(arguments):
            future = session.add(lambda _, op=op: op)
            futures[op.id] = future
        row = _Row(futures, arguments)
        state.branch.take_over(
            [row.item(item) for item in self._items],
            {name: row.value(value) for name, value in self._variables.items()},
        )
        state.ret_value = row.returned(self._returned)
        session.end_body()


class _Row:
    """What a trace's values are in one row."""

    def __init__(self, futures: Mapping[int, OpFuture], arguments: Mapping[str, str]) -> None:
        self._futures = futures
        self._arguments = arguments

    def check(self, items: Sequence[Item], variables: Mapping[str, Value], returned: Any) -> None:
        """Whether all of it can be had in a row.

        Raises:
            ProgramError: something cannot.
        """
        values = [*(item.value for item in items if item.value is not None), *variables.values()]
        for value in values:
            if not isinstance(value, PlainValue | OpValue | ThinkingValue | ScopeValue | GatherValue):
                raise ProgramError(f"making a template: a {type(value).__name__} belongs to one run")
        if isinstance(returned, ProgramState):
            raise ProgramError("making a template: the body returns a state")

    def _future(self, traced: OpFuture) -> OpFuture:
        return self._futures[traced.op.id]

    def item(self, item: Item) -> Item:
        """The same for the row's ops."""
        value = None if item.value is None else self.value(item.value)
        shown = value.part() if item.shown is not None and isinstance(value, ThinkingValue) else None
        future = None if item.future is None else self._future(item.future)
        return Item(future, item.name, value, shown)

    def value(self, value: Value) -> Value:
        """The same for the row's ops."""
        match value:
            case OpValue() | ThinkingValue():
                return value.over(self._future(value.future))
            case ScopeValue(futures=futures):
                return ScopeValue([self._future(future) for future in futures])
            case GatherValue(parts=parts):
                return GatherValue([self.value(part) for part in parts])
            case PlainValue():
                plain = value.get()
                return _SymbolValue(self, plain) if isinstance(plain, SglSymbol) else value
            case _:
                raise AssertionError(f"a {type(value).__name__} passed the check of a template")

    def returned(self, value: Any) -> Any:
        """A symbol that waits for its text; lists and dicts of them, too."""
        if isinstance(value, SglSymbol):
            return SglLazyValue("returned", value, lambda: self.text(value), lambda _: None)
        if isinstance(value, list):
            return [self.returned(item) for item in cast("list[Any]", value)]
        if type(value) is tuple:
            return tuple(self.returned(item) for item in cast("tuple[Any, ...]", value))
        if isinstance(value, dict):
            return {key: self.returned(item) for key, item in cast("dict[Any, Any]", value).items()}
        return value

    def text(self, symbol: SglExpr) -> Any:
        """Wait for what a symbol stands for."""
        match symbol:
            case SglConstantText(value=text):
                return text
            case SglArgument(name=name):
                return self._arguments[name]
            case SglRef(target=target, marks=marks, starts_inside=starts_inside):
                return RefOp(0, 0, target, marks, starts_inside).text_of(self._futures[target].result().text)
            case SglTextOf(parts=parts):
                return "".join(self.text(part) for part in parts)
            case _:
                return "".join(self.text(part) for part in flatten(symbol))

    def ops_of(self, symbol: SglExpr) -> list[OpFuture]:
        """The ops that a symbol needs."""
        if isinstance(symbol, SglRef):
            return [self._futures[symbol.target]]
        parts = symbol.parts if isinstance(symbol, SglTextOf) else []
        return [future for part in parts for future in self.ops_of(part)]


class _SymbolValue:
    """A name that the body bound to a symbol (see `values.Value`)."""

    def __init__(self, row: _Row, symbol: SglSymbol) -> None:
        self._row = row
        self._symbol = symbol

    def get(self) -> Any:
        """Wait for the text."""
        return self._row.text(self._symbol)

    def text(self) -> Any:
        """The same."""
        return self.get()

    def meta(self) -> Any:
        """Nothing."""
        return None

    def ops(self) -> list[OpFuture]:
        """The ops that it needs."""
        return self._row.ops_of(self._symbol)


def templates_of(calls: Sequence[Call]) -> list[TemplateRow] | None:
    """A template and the texts for it for each call, equal ones shared; None: the rows have to be run one by one.

    Arguments that are texts are symbols of the template; rows with equal other arguments share one.
    """
    found: list[tuple[dict[str, Any], frozenset[str], Template]] = []
    rows: list[TemplateRow] = []
    for call in calls:
        texts = {name: value for name, value in call.kwargs.items() if isinstance(value, str)}
        fixed = {name: value for name, value in call.kwargs.items() if name not in texts}
        names = frozenset(texts)
        template = next((t for other, n, t in found if n == names and _are_equal(other, fixed)), None)
        if template is None:
            if len(found) == MAX_TEMPLATES or call.args:
                return None
            try:
                symbols = {name: SglArgument(name) for name in texts}
                template = Template(trace(call.function, call.label, (), {**fixed, **symbols}, call.defaults))
            except SglangLiteError:  # the rows themselves say what is wrong, if anything is
                return None
            found.append((fixed, names, template))
        rows.append((template, texts))
    return rows


def _are_equal(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    try:
        return bool(left == right)
    except Exception:  # noqa: BLE001 - comparing a user's objects (arrays, say) may fail in any way: not equal, then
        return False
