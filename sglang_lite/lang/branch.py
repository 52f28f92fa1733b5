"""One branch of a program: turns expressions into ops, and keeps what was appended and what names mean here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang.choices import wire_name
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.ir import (
    SglAppended,
    SglConstantText,
    SglExpr,
    SglExprList,
    SglGen,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglSeparateReasoning,
    SglVarScopeBegin,
    SglVarScopeEnd,
    flatten,
    need_expr,
)
from sglang_lite.lang.reasoning import REASONING_SUFFIX, ThinkingPart, ThinkingValue, thinking_format
from sglang_lite.lang.sampling import RunDefaults, resolve_gen
from sglang_lite.lang.session import Session
from sglang_lite.lang.symbols import SglArgument, SglRef, SglTextOf
from sglang_lite.lang.values import GatherValue, OpValue, PlainValue, ScopeValue, Value
from sglang_lite.request_tree import (
    ArgOp,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    RefOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TextOp,
)

JoinMode: TypeAlias = Literal["gather", "concat"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened on a branch, in order: an op, or a name that got a value without one.

    `shown`: where the text of the op can be read before the op itself has it.
    """

    future: OpFuture | None = None
    name: str | None = None
    value: Value | None = None
    shown: ThinkingPart | None = None


class Branch:
    """A branch and its history, which begins with its parent's up to the fork.

    Positions count the items of the whole history. `variables` are the names as they stand here; `own_names` those
    that were bound here since the fork.
    """

    def __init__(self, session: Session, number: int, defaults: RunDefaults, parent: Branch | None = None) -> None:
        self.session = session
        self.number = number
        self.defaults = defaults
        self.variables: dict[str, Value] = dict(parent.variables) if parent else {}
        self.own_names: dict[str, None] = {}
        self._parent = parent
        self._base = parent.position if parent else 0
        self._items: list[Item] = []
        self._role: str | None = parent._role if parent else None
        self._scopes: list[tuple[str, int]] = list(parent._scopes) if parent else []

    # --- history ---

    @property
    def position(self) -> int:
        """How many items the history has."""
        return self._base + len(self._items)

    def items(self, start: int = 0, stop: int | None = None) -> Iterator[Item]:
        """The items of the history from `start` to `stop`, the inherited ones first."""
        owners: list[Branch] = [self]
        while owners[-1]._base > start and (parent := owners[-1]._parent) is not None:
            owners.append(parent)
        end = self.position if stop is None else stop
        limits = [end, *(owner._base for owner in owners[:-1])]
        for owner, limit in zip(reversed(owners), reversed(limits), strict=True):
            low, high = start - owner._base, min(limit, end) - owner._base
            yield from owner._items[max(low, 0) : max(high, 0)]

    def futures(self, start: int = 0, stop: int | None = None) -> list[OpFuture]:
        """The ops of the history."""
        return [item.future for item in self.items(start, stop) if item.future is not None]

    def bind(self, name: str, value: Value, occurrence: Value | None = None, future: OpFuture | None = None) -> None:
        """From here on `name` means `value`; `occurrence`: what this event added to it."""
        self._set(name, value)
        self._note(Item(future, name, occurrence or value))

    def _set(self, name: str, value: Value) -> None:
        self.variables[name] = value
        self.own_names[name] = None

    def _note(self, item: Item) -> None:
        with self.session.signal.changed:
            self._items.append(item)
            self.session.signal.notify()

    # --- appending ---

    def submit(self, value: object) -> None:
        """Append text or an expression; never waits.

        Raises:
            RequestError: it is neither, or its parameters are wrong.
            ProgramError: it has no meaning here (nested roles, an ended branch, ...).
        """
        self._submit(need_expr(f"appending to a state of {self.session.label}", value))

    def _submit(self, expr: SglExpr) -> None:
        match expr:
            case SglAppended():
                raise ProgramError(
                    "appending what s.user(...), s.system(...) or s.assistant(...) returned: it is in the state "
                    "already; write s.user(x), or s += sgl.user(x)"
                )
            case SglExprList(expr_list=inner) | SglTextOf(parts=inner):
                for node in inner:
                    self._submit(node)
            case SglConstantText(value=text, literal=literal):
                self._text(text, literal)
            case SglGen():
                self._gen(expr)
            case SglSelect():
                self._select(expr)
            case SglRoleBegin(role=role):
                self.begin_role(role)
            case SglRoleEnd(role=role):
                self.end_role(role)
            case _:
                self._submit_rare(expr)

    def _submit_rare(self, expr: SglExpr) -> None:
        match expr:
            case SglVarScopeBegin(name=name):
                self.begin_scope(name)
            case SglVarScopeEnd(name=name):
                self.end_scope(name)
            case SglSeparateReasoning(expr=inner, model_type=model_type):
                self._separate(inner, model_type)
            case SglArgument() | SglRef():
                self._symbol(expr)
            case _:
                raise RequestError(
                    f"appending to a state: got a {type(expr).__name__}, which is no expression of this language"
                )

    def _text(self, text: str, literal: bool) -> None:
        if text:  # an empty text changes nothing, so it is no op
            is_literal = literal or self._role is not None
            self._note(Item(self.session.add(lambda new: TextOp(new, self.number, text, is_literal))))

    def _gen(self, expr: SglGen) -> None:
        params, logprob = resolve_gen(expr, self.defaults)
        stream = self.session.is_streaming
        future = self.session.add(lambda new: GenOp(new, self.number, expr.name, params, logprob, stream))
        self._bind_op(expr.name, future)

    def _select(self, expr: SglSelect) -> None:
        method = expr.choices_method
        name = wire_name(method)
        is_own = name == "client"
        future = self.session.add(
            lambda new: SelectOp(
                new,
                self.number,
                expr.name,
                expr.choices,
                name,
                needs_unconditional=is_own and method.requires_unconditional_logprobs,
            ),
            method if is_own else None,
        )
        self._bind_op(expr.name, future)

    def _symbol(self, symbol: SglArgument | SglRef) -> None:
        if isinstance(symbol, SglArgument):
            if symbol.value is not None:
                self.submit(symbol.value)
            else:
                self._note(Item(self.session.add(lambda new: ArgOp(new, self.number, symbol.name))))
        elif symbol.session is self.session:
            self._note(Item(self.session.add(lambda new: _ref_op(new, self.number, symbol))))
        elif self.session.is_traced:  # a value of a nested program, which has a tree of its own
            label = symbol.session.label if isinstance(symbol.session, Session) else "another program"
            name = f"{label}.{symbol.name or symbol.target}"
            self._note(Item(self.session.add(lambda new: ArgOp(new, self.number, name))))
        else:
            raise ProgramError(
                f"appending a reference to {symbol.name!r}: it belongs to another run; read the value there: s[name]"
            )

    def _separate(self, expr: SglExpr, model_type: str) -> None:
        """The gens run on a branch of their own; here their answers follow, so that no thinking is in the text."""
        found = thinking_format(model_type)
        child = self.fork(1)[0]
        start = child.position
        child.submit(expr)
        values = iter([item.value for item in child.items(start) if isinstance(item.value, OpValue)])
        for node in flatten(expr):
            if not isinstance(node, SglGen | SglSelect):
                self._submit(node)
                continue
            target = next(values).future
            marks = found.marks if isinstance(node, SglGen) else None
            ref = SglRef(self.session, target.op.id, node.name, marks, found.starts_inside)
            future = self.session.add(lambda new, ref=ref: _ref_op(new, self.number, ref))
            if marks is None:
                self._bind_op(node.name, target, future)
                continue
            answer = ThinkingValue(target, found, "answer")
            self._note(Item(future, node.name, answer, shown=answer.part()))
            if node.name is not None:
                self._set(node.name, answer)
                self.bind(node.name + REASONING_SUFFIX, ThinkingValue(target, found, "thinking"))
        self._note(Item(self.session.add(lambda new: JoinOp(new, self.number, (child.number,)))))

    def ref(self, name: str, index: int | None = None) -> SglExpr:
        """The value of `name` (its element `index`, where it is a list) as an expression; waits for nothing.

        Raises:
            KeyError: there is no such name.
            RequestError: what the name means is no text, or not one that an op gives.
        """
        value = self.variables[name]
        what = f"referring to {name!r}"
        if isinstance(value, GatherValue):
            if index is None:
                raise RequestError(f"{what}: it is a list of {len(value.parts)}; say which one: s.ref({name!r}, 0)")
            value = value.parts[index]
        elif index is not None:
            raise RequestError(f"{what}: it is no list, expected no index; got {index}")
        return as_symbol(value, self.session, name)

    def _bind_op(self, name: str | None, future: OpFuture, shown_by: OpFuture | None = None) -> None:
        """`future` has the value of `name`, and its text unless `shown_by` has that."""
        value = OpValue(future)
        if name is None:
            self._note(Item(shown_by or future, None, value))
        else:
            self.bind(name, value, future=shown_by or future)

    def begin_role(self, role: str) -> None:
        """Open a turn."""
        self._note(Item(self.session.add(lambda new: RoleBeginOp(new, self.number, role))))
        self._role = role

    def end_role(self, role: str) -> None:
        """Close the open turn, which must be one of `role`."""
        if self._role is not None and self._role != role:
            raise ProgramError(f"ending the role {role!r}: the open one is {self._role!r}; end that one")
        self._note(Item(self.session.add(lambda new: RoleEndOp(new, self.number))))
        self._role = None

    def begin_scope(self, name: str) -> None:
        """Text from here on belongs to `name`."""
        self._scopes.append((name, self.position))

    def end_scope(self, name: str) -> None:
        """`name` is the text since its scope began."""
        if not self._scopes or self._scopes[-1][0] != name:
            opened = [scope for scope, _ in self._scopes]
            raise ProgramError(f"ending the variable scope {name!r}: open are {opened}; end the innermost one first")
        _, start = self._scopes.pop()
        self.bind(name, ScopeValue(self.futures(start)))

    # --- fork and join ---

    def fork(self, size: int) -> list[Branch]:
        """Child branches that start as copies of this one; no barrier: nothing is waited for."""
        if size == 0:
            return []
        children = self.session.new_branches(size)
        self._note(Item(self.session.add(lambda new: ForkOp(new, self.number, children))))
        return [Branch(self.session, number, self.defaults, self) for number in children]

    def join(self, children: Sequence[Branch], mode: JoinMode) -> None:
        """End `children`. `gather`: names that they bound become lists here; `concat`: their texts are appended.

        A name that an earlier join bound here grows; one that this branch bound itself is replaced by the list.
        """
        numbers = tuple(child.number for child in children)
        if not numbers:
            return
        self._note(Item(self.session.add(lambda new: JoinOp(new, self.number, numbers, mode))))
        if mode == "concat":
            return
        for name in dict.fromkeys(name for child in children for name in child.own_names):
            parts = [child.variables[name] for child in children if name in child.own_names]
            before = self.variables.get(name)
            kept = before.parts if isinstance(before, GatherValue) else ()
            self.bind(name, GatherValue([*kept, *parts]), occurrence=GatherValue(parts))

    # --- reading ---

    def all_ops(self) -> list[OpFuture]:
        """The ops of the history and those that gathered values need."""
        found: dict[int, OpFuture] = {}
        for item in self.items():
            for future in [*([item.future] if item.future else []), *(item.value.ops() if item.value else [])]:
                found[future.op.id] = future
        return list(found.values())

    def texts(self) -> list[str]:
        """The text that each op has added until now."""
        return [future.text_so_far for future in self.futures()]

    def messages(self) -> list[dict[str, str]]:
        """The closed turns so far; the text of each without leading white space."""
        messages: list[dict[str, str]] = []
        role: str | None = None
        parts: list[str] = []
        for future in self.futures():
            match future.op:
                case RoleBeginOp(role=begun):
                    role, parts = begun, []
                case RoleEndOp() if role is not None:
                    messages.append({"role": role, "content": "".join(parts).lstrip()})
                    role = None
                case _:
                    parts.append(future.text_so_far)
        return messages


def _ref_op(new: int, branch: int, ref: SglRef) -> Op:
    return RefOp(new, branch, ref.target, ref.marks, ref.starts_inside)


def as_symbol(value: Value, session: Session, name: str) -> SglExpr:
    """A value as an expression that needs no waiting.

    Raises:
        RequestError: it is no text, or has roles in it, whose text the backend alone knows.
    """
    match value:
        case OpValue(future=future):
            return SglRef(session, future.op.id, name)
        case ThinkingValue(future=future, format=found, half="answer"):
            return SglRef(session, future.op.id, name, found.marks, found.starts_inside)
        case ScopeValue(futures=futures):
            return SglTextOf([text_symbol(future, session, name) for future in futures], f"the value {name!r}")
        case PlainValue():
            return need_expr(f"referring to {name!r}", value.get())
        case _:
            raise RequestError(f"referring to {name!r}: it is no text of a gen or select; read it: s[{name!r}]")


def text_symbol(future: OpFuture, session: Session, name: str) -> SglExpr:
    """What an op adds to its branch's text, as an expression.

    Raises:
        RequestError: only the backend knows it.
    """
    match future.op:
        case TextOp(text=text, literal=literal):
            return SglConstantText(text, literal)
        case RefOp(target=target, marks=marks, starts_inside=starts_inside):
            return SglRef(session, target, name, marks, starts_inside)
        case ArgOp(name=argument):
            return SglArgument(argument)
        case GenOp() | SelectOp():
            return SglRef(session, future.op.id, name)
        case ForkOp() | JoinOp(mode="gather"):
            return SglExprList()
        case _:
            raise RequestError(f"referring to {name!r}: its text has roles or joined text in it; read it: s[{name!r}]")
