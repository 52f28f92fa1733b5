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
    SglVarScopeBegin,
    SglVarScopeEnd,
    need_expr,
)
from sglang_lite.lang.sampling import RunDefaults, resolve_gen
from sglang_lite.lang.session import Session
from sglang_lite.lang.values import GatherValue, OpValue, ScopeValue, Value
from sglang_lite.request_tree import (
    ForkOp,
    GenOp,
    JoinOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TextOp,
)

JoinMode: TypeAlias = Literal["gather", "concat"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened on a branch, in order: an op, or a name that got a value without one."""

    future: OpFuture | None = None
    name: str | None = None
    value: Value | None = None


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
        self.variables[name] = value
        self.own_names[name] = None
        self._note(Item(future, name, occurrence or value))

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
            case SglExprList(expr_list=inner):
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
            case SglVarScopeBegin(name=name):
                self.begin_scope(name)
            case SglVarScopeEnd(name=name):
                self.end_scope(name)
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

    def _bind_op(self, name: str | None, future: OpFuture) -> None:
        if name is None:
            self._note(Item(future, None, OpValue(future)))
        else:
            self.bind(name, OpValue(future), future=future)

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
