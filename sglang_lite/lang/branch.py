"""One branch of a program: turns expressions into ops, and keeps what was appended and what names mean here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sglang_lite.chat_formats.thinking import ThinkingFormat
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
from sglang_lite.lang.marks import Mark, Rewound
from sglang_lite.lang.messages import GivenTurn, Happening, Message, closed_turns
from sglang_lite.lang.races import ListsValue, RaceValue, VoteValue
from sglang_lite.lang.reasoning import REASONING_SUFFIX, ThinkingPart, ThinkingValue, thinking_format
from sglang_lite.lang.referring import as_symbol, ref_op
from sglang_lite.lang.sampling import RunDefaults, resolve_gen
from sglang_lite.lang.session import Session
from sglang_lite.lang.symbols import SglArgument, SglLazyValue, SglRef, SglTextOf
from sglang_lite.lang.tools.gens import SglThinking, SglToolGen
from sglang_lite.lang.tools.values import ReplyReader, ThinkingToolValue, ToolValue
from sglang_lite.lang.typed.attempts import Attempts, wanted_of
from sglang_lite.lang.typed.gens import as_typed
from sglang_lite.lang.values import GatherValue, OpValue, PlainValue, ScopeValue, Value
from sglang_lite.request_tree import (
    ArgOp,
    Backend,
    CountOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)

JoinMode: TypeAlias = Literal["gather", "concat"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened on a branch, in order: an op, or a name that got a value without one.

    `shown`: where the text of the op can be read before the op itself has it. `message`: which one from outside begins
    here. `is_hidden`: the text is the template's, not a message's.
    """

    future: OpFuture | None = None
    name: str | None = None
    value: Value | None = None
    shown: ThinkingPart | None = None
    message: Message | None = None
    is_hidden: bool = False


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
        self._template: dict[str, Any] = dict(parent._template) if parent else {}
        """Variables of the chat template as they are here."""
        self._scopes: list[tuple[str, int]] = list(parent._scopes) if parent else []
        self._rewound = Rewound()

    # --- history ---

    @property
    def position(self) -> int:
        """How many items the history has."""
        return self._base + len(self._items)

    def items(self, start: int = 0, stop: int | None = None, *, with_rewound: bool = True) -> Iterator[Item]:
        """The items of the history from `start` to `stop`, the inherited ones first.

        Args:
            with_rewound: also those that a rewind has taken back.
        """
        owners: list[Branch] = [self]
        while owners[-1]._base > start and (parent := owners[-1]._parent) is not None:
            owners.append(parent)
        end = self.position if stop is None else stop
        limits = [self.position, *(owner._base for owner in owners[:-1])]
        for owner, limit in zip(reversed(owners), reversed(limits), strict=True):
            low, high = start - owner._base, min(limit, end) - owner._base
            for place, item in enumerate(owner._items[max(low, 0) : max(high, 0)], owner._base + max(low, 0)):
                if with_rewound or not owner._rewound.has(place, limit):
                    yield item

    def futures(self, start: int = 0, stop: int | None = None) -> list[OpFuture]:
        """The ops of the text as it is: without what was taken back."""
        items = self.items(start, stop, with_rewound=False)
        return [item.future for item in items if item.future is not None]

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
                self._separate(inner, thinking_format(model_type), self.defaults)
            case SglThinking():
                self._think(expr)
            case SglArgument() | SglRef():
                self._symbol(expr)
            case SglLazyValue(expr=inner):
                self._submit(inner)
            case _:
                raise RequestError(
                    f"appending to a state: got a {type(expr).__name__}, which is no expression of this language"
                )

    def _text(self, text: str, literal: bool) -> None:
        if text:  # an empty text changes nothing, so it is no op
            is_literal = literal or self._role is not None
            self._note(Item(self.session.add(lambda new: TextOp(new, self.number, text, is_literal))))

    def _gen(self, expr: SglGen, kept_thinking: ThinkingFormat | None = None) -> None:
        params, logprob = resolve_gen(expr, self.defaults)
        if isinstance(expr, SglToolGen):
            self._show_tools(expr)
        wanted, hold = wanted_of(expr, params, is_call=isinstance(expr, SglToolGen))
        own = as_typed(expr)
        if own is not None and own.described:
            self._text(own.described, literal=True)
        stream = self.session.is_streaming and not hold  # what may be taken back is not shown
        future = self.session.add(
            lambda new: GenOp(new, self.number, expr.name, params, logprob, stream, hold),
            attempts=None if wanted is None else Attempts(wanted, expr.name),
        )
        if kept_thinking is not None:
            self._bind_thinking(expr, future, kept_thinking, None)
        else:
            self._bind_op(expr.name, future, value=self._tool_value(expr, future))

    def _show_tools(self, expr: SglToolGen) -> None:
        """From here on the model is shown these tools."""
        if self._role != "assistant":
            raise ProgramError(
                f"appending gen {expr.name!r} with tools: {'no' if self._role is None else f'the {self._role}'} turn is "
                "open; tools are called in the assistant's turn: s += sgl.assistant(sgl.gen(..., tools=[...]))"
            )
        self._set_template({"tools": expr.specs})

    def _set_template(self, variables: dict[str, Any]) -> None:
        changed = {name: value for name, value in variables.items() if self._template.get(name) != value}
        if changed:
            self._template |= changed
            text = json.dumps(changed, ensure_ascii=False)
            self._note(Item(self.session.add(lambda new: TemplateOp(new, self.number, text))))

    def _reader(self, expr: SglToolGen) -> ReplyReader:
        return ReplyReader(self.defaults.chat.tool_format, is_off=expr.tool_choice == "none")

    def _tool_value(self, expr: SglGen, future: OpFuture) -> OpValue:
        return ToolValue(future, self._reader(expr)) if isinstance(expr, SglToolGen) else OpValue(future)

    def _think(self, expr: SglThinking) -> None:
        """A gen whose thinking is kept apart, and, unless it is to be kept, out of the text."""
        chat = self.defaults.chat
        found = chat.thinking if expr.marks is None else ThinkingFormat(expr.marks)
        if chat.thinking_switch is not None:
            self._set_template({chat.thinking_switch: False if expr.thinking == "off" else None})
            found = None if expr.thinking == "off" else found
        if found is None:  # the model does not think here
            self._gen(expr.gen)
            if expr.gen.name is not None:
                self.bind(expr.gen.name + REASONING_SUFFIX, PlainValue(""))
            return
        budget = expr.thinking if isinstance(expr.thinking, int) else 0 if expr.thinking == "off" else None
        params = self.defaults.params.with_(thinking=found.held_marks(budget), thinking_budget=budget)
        defaults = replace(self.defaults, params=params)
        if not expr.keep:
            self._separate(expr.gen, found, defaults)
            return
        before, self.defaults = self.defaults, defaults
        try:
            self._gen(expr.gen, found)
        finally:
            self.defaults = before

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
            self._note(Item(self.session.add(lambda new: ref_op(new, self.number, symbol))))
        elif self.session.is_traced:  # a value of a nested program, which has a tree of its own
            label = symbol.session.label if isinstance(symbol.session, Session) else "another program"
            name = f"{label}.{symbol.name or symbol.target}"
            self._note(Item(self.session.add(lambda new: ArgOp(new, self.number, name))))
        else:
            raise ProgramError(
                f"appending a reference to {symbol.name!r}: it belongs to another run; read the value there: s[name]"
            )

    def _separate(self, expr: SglExpr, found: ThinkingFormat, defaults: RunDefaults) -> None:
        """The gens run on a branch of their own; here their answers follow, so that no thinking is in the text."""
        child = self.fork(1)[0]
        child.defaults = defaults
        start = child.position
        child.submit(expr)
        self._template |= child._template
        values = iter([item.value for item in child.items(start) if isinstance(item.value, OpValue)])
        for node in flatten(expr):
            if not isinstance(node, SglGen | SglSelect):
                self._submit(node)
                continue
            target = next(values).future
            marks = found.marks if isinstance(node, SglGen) else None
            if marks is not None and found.starts_inside and self._role is not None:
                end = f"{marks[1]}\n\n"  # the prompt has opened the thinking
                self._note(
                    Item(self.session.add(lambda new, end=end: TextOp(new, self.number, end, True)), is_hidden=True)
                )
            ref = SglRef(self.session, target.op.id, node.name, marks, found.starts_inside)
            future = self.session.add(lambda new, ref=ref: ref_op(new, self.number, ref))
            if isinstance(node, SglGen):
                self._bind_thinking(node, target, found, future)
            else:
                self._bind_op(node.name, target, future)
        self._note(Item(self.session.add(lambda new: JoinOp(new, self.number, (child.number,)))))

    def _bind_thinking(self, expr: SglGen, target: OpFuture, found: ThinkingFormat, shown_by: OpFuture | None) -> None:
        """Name the two halves of `target`, whose answer `shown_by` has as its text (None: the text stays whole)."""
        if isinstance(expr, SglToolGen):
            answer: ThinkingValue = ThinkingToolValue(target, found, "answer", self._reader(expr))
        else:
            answer = ThinkingValue(target, found, "answer")
        shown = None if shown_by is None else answer.part()
        self._note(Item(shown_by or target, expr.name, answer, shown=shown))
        if expr.name is not None:
            self._set(expr.name, answer)
            self.bind(expr.name + REASONING_SUFFIX, ThinkingValue(target, found, "thinking"))

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

    def _bind_op(
        self, name: str | None, future: OpFuture, shown_by: OpFuture | None = None, value: OpValue | None = None
    ) -> None:
        """`future` has the value of `name` (by default its own), and its text unless `shown_by` has that."""
        value = value or OpValue(future)
        if name is None:
            self._note(Item(shown_by or future, None, value))
        else:
            self.bind(name, value, future=shown_by or future)

    def begin_role(self, role: str, fields: str | None = None, message: Message | None = None) -> None:
        """Open a turn. `fields` as of `RoleBeginOp`; `message`: the one from outside that it is."""
        future = self.session.add(lambda new: RoleBeginOp(new, self.number, role, fields))
        self._note(Item(future, message=message))
        self._role = role

    def extend(self, turns: Sequence[GivenTurn]) -> None:
        """Append whole turns from outside."""
        for turn in turns:
            self.begin_role(turn.role, turn.fields, turn.message)
            self._text(turn.text, literal=True)
            self.end_role(turn.role)

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

    def fork(self, size: int, backends: Sequence[Backend | None] = ()) -> list[Branch]:
        """Child branches that start as copies of this one; no barrier: nothing is waited for.

        Args:
            backends: where each child runs (None: where this branch does).
        """
        if size == 0:
            return []
        children = self.session.new_branches(size)
        for child, backend in zip(children, backends, strict=False):
            if backend is not None and not self.session.is_traced:
                self.session.route(child, backend, self.futures())
        self._note(Item(self.session.add(lambda new: ForkOp(new, self.number, children))))
        return [Branch(self.session, number, self.defaults, self) for number in children]

    def absorb(self, child: Branch) -> None:
        """Take over what `child` has appended and bound since it was forked here, and end it; nothing is waited for.

        Turns become turns of this branch's own template; what was generated becomes its text.

        Raises:
            ProgramError: a turn or a variable scope was begun or ended in the child, but not both.
        """
        if child._role != self._role or child._scopes != self._scopes:
            raise ProgramError(
                f"ending a block on another backend in {self.session.label}: a turn or a variable scope was begun or ended "
                "inside, but not both; begin and end it there"
            )
        for item in list(child.items(child._base, with_rewound=False)):
            future = None if item.future is None else self._again(item.future.op)
            if future is not None or item.name is not None or item.value is not None:
                self._note(replace(item, future=future))
        for name in child.own_names:
            self._set(name, child.variables[name])
        self._template = dict(child._template)
        self._note(Item(self.session.add(lambda new: JoinOp(new, self.number, (child.number,)))))

    def _again(self, op: Op) -> OpFuture | None:
        """Append here what an op appended on another branch; None: it left no text."""
        match op:
            case TextOp() | RoleBeginOp() | RoleEndOp() | TemplateOp() | RefOp() | ArgOp():
                return self.session.add(lambda new: replace(op, id=new, branch=self.number))
            case GenOp() | SelectOp() | JoinOp(mode="concat"):
                return self.session.add(lambda new: RefOp(new, self.number, op.id))
            case _:
                return None

    def join(
        self, children: Sequence[Branch], mode: JoinMode, first: int | None = None, vote: str | None = None
    ) -> OpFuture | None:
        """End `children`. `gather`: names that they bound become lists here; `concat`: their texts are appended.

        A name that an earlier join bound here grows; one that this branch bound itself is replaced by the list. With
        `first` or `vote` (see `JoinOp`) the lists are those of the winners, and the name `vote` is the value that won.
        Returns the op, None without children.
        """
        numbers = tuple(child.number for child in children)
        if not numbers:
            return None
        is_race = first is not None or vote is not None
        if is_race:
            self.session.excuse(numbers)

        def build(new: int) -> JoinOp:
            if mode == "concat":
                self.session.joins_text(new, [f for child in children for f in child.futures(child._base)])
            return JoinOp(new, self.number, numbers, mode, first, vote)

        future = self.session.add(build)
        self._note(Item(future))
        if mode == "concat":
            return future
        for name in dict.fromkeys(name for child in children for name in child.own_names):
            parts = {i: child.variables[name] for i, child in enumerate(children) if name in child.own_names}
            if name == vote:
                self.bind(name, VoteValue(future, parts))
                continue
            new = RaceValue(future, parts) if is_race else GatherValue(list(parts.values()))
            before = self.variables.get(name)
            if isinstance(before, GatherValue) and isinstance(new, GatherValue):
                self.bind(name, GatherValue([*before.parts, *new.parts]), occurrence=new)
            elif isinstance(before, GatherValue | RaceValue | ListsValue) and not isinstance(before, VoteValue):
                self.bind(name, ListsValue(before, new), occurrence=new)
            else:
                self.bind(name, new)
        return future

    # --- going back ---

    def mark(self) -> Mark:
        """Remember this place."""
        future = self.session.add(lambda new: MarkOp(new, self.number))
        self._note(Item(future))
        return Mark(
            future.op.id,
            self.session,
            self.number,
            self.position,
            self._role,
            tuple(self._scopes),
            dict(self._template),
        )

    def rewind(self, mark: Mark) -> None:
        """Be what the branch was at `mark`; names keep what they mean.

        Raises:
            ProgramError: it is a mark of another branch, or was rewound past.
        """
        if mark.session is not self.session or mark.branch != self.number:
            raise ProgramError(
                f"rewinding a state of {self.session.label}: the mark was made on another state; a state goes back to marks "
                "that it made itself, by s.mark()"
            )
        since = [item.future.op for item in self.items(mark.position) if item.future is not None]
        forked = [child for op in since if isinstance(op, ForkOp) for child in op.children]
        joined = {child for op in since if isinstance(op, JoinOp) for child in op.children}
        self.session.excuse([child for child in forked if child not in joined])
        future = self.session.add(lambda new: RewindOp(new, self.number, mark.op))
        with self.session.signal.changed:
            self._rewound.add(mark.position, self.position)
        self._note(Item(future))
        self._role, self._scopes, self._template = mark.role, list(mark.scopes), dict(mark.template)

    def count(self) -> OpFuture:
        """Ask how many tokens the branch has here."""
        future = self.session.add(lambda new: CountOp(new, self.number))
        self._note(Item(future))
        return future

    def take_over(self, items: Sequence[Item], variables: Mapping[str, Value]) -> None:
        """Make this fresh branch what another one was at its end."""
        self._items = list(items)
        self.variables = dict(variables)
        self.own_names = dict.fromkeys(variables)

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

    def messages(self) -> list[Message]:
        """The closed turns so far, see `closed_turns`."""
        return closed_turns(
            Happening(item.future, item.value, item.message, item.is_hidden)
            for item in self.items(with_rewound=False)
            if item.future is not None
        )
