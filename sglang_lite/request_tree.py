"""The contract between the language and the runtime: the tree of a program's ops, its findings, and the backends.

Pure data on the standard library. The language appends ops to branches and never blocks doing so; a backend
executes them and reports events. Neither side knows the other. Everything of `ops` can be imported from here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.op_json import VERSION, check_version, op_from_json, op_to_json
from sglang_lite.ops import (
    AcceptOp,
    AnswerOp,
    ArgOp,
    ChoicesMethod,
    CountOp,
    DecideOp,
    EndOp,
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    RefOp,
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
    TokenKind,
    split_thinking,
)
from sglang_lite.sampling_params import LogprobParams, SamplingParams

__all__ = [
    "AcceptOp",
    "AnswerOp",
    "ArgOp",
    "Backend",
    "ChatBackend",
    "ChoicesMethod",
    "CountOp",
    "DecideOp",
    "EndOp",
    "Event",
    "EventSink",
    "Finding",
    "ForkOp",
    "GenOp",
    "JoinOp",
    "LogprobParams",
    "MarkOp",
    "Op",
    "OpDelta",
    "OpDone",
    "OpFailed",
    "OpHeld",
    "OpScored",
    "Program",
    "RefOp",
    "RefuseOp",
    "RequestTree",
    "RetryOp",
    "RewindOp",
    "RoleBeginOp",
    "RoleEndOp",
    "RowsBackend",
    "SamplingParams",
    "SeededProgram",
    "SelectOp",
    "TemplateOp",
    "TextOp",
    "TokenKind",
    "TreeChecker",
    "TreeRow",
    "split_thinking",
]


def _adding(op: Op) -> str:
    return f"adding {type(op).__name__} {op.id} to branch {op.branch}"


class RequestTree:
    """All ops of one program, checked as they are added; owns order, branches and their parents, not their execution."""

    def __init__(self) -> None:
        self.ops: dict[int, Op] = {}
        self.parents: dict[int, int | None] = {0: None}
        self._ended: set[int] = set()
        self._joined: set[int] = set()
        self._open_role: dict[int, str | None] = {0: None}
        self._marks: dict[int, str | None] = {}
        """The role that is open at each mark."""

    def add(self, op: Op) -> None:
        """Check `op` against what was added before and keep it.

        Raises:
            ProgramError: names the op and the rule that it breaks (unknown or ended branch, id used twice, nested
                role, role end without begin, a fork child that exists, a join of a branch that is not a child).
        """
        if op.id in self.ops:
            raise ProgramError(
                f"{_adding(op)}: the id is taken by a {type(self.ops[op.id]).__name__}, expected a new id"
            )
        if op.branch not in self.parents:
            raise ProgramError(f"{_adding(op)}: no such branch, known are {sorted(self.parents)}")
        if op.branch in self._ended and not isinstance(op, AnswerOp):  # it answers an op from before the end
            raise ProgramError(
                f"{_adding(op)}: the branch has ended (joined, or its fork was left); append to a live branch"
            )
        if not isinstance(op, TextOp):  # most ops are one
            self._check_kind(op, _adding(op))
        self.ops[op.id] = op

    @property
    def arguments(self) -> list[str]:
        """Names of the arguments that have no value yet, in the order of their first use."""
        return list(dict.fromkeys(op.name for op in self.ops.values() if isinstance(op, ArgOp)))

    def bound(self, arguments: Mapping[str, str]) -> list[Op]:
        """All ops with values in place of the arguments: text that is never parsed for special tokens.

        Raises:
            ProgramError: an argument has no value, or one that is no text; names the op.
        """
        return [self._bind(op, arguments) if isinstance(op, ArgOp) else op for op in self.ops.values()]

    def _bind(self, op: ArgOp, arguments: Mapping[str, str]) -> Op:
        value: object = arguments.get(op.name)
        if not isinstance(value, str):
            raise ProgramError(
                f"binding ArgOp {op.id} on branch {op.branch}: the argument {op.name!r} is {value!r:.80}, expected a str; "
                "turn other values into text with str()"
            )
        return TextOp(op.id, op.branch, value, literal=True)

    def to_json(self) -> dict[str, Any]:
        """The tree as plain data, see `docs/request_tree.md`."""
        return {"version": VERSION, "ops": [op_to_json(op) for op in self.ops.values()]}

    @staticmethod
    def from_json(data: object) -> RequestTree:
        """The tree that `data` describes, checked op by op.

        Raises:
            RequestError: it describes no tree, another version wrote it, or an op cannot be read; names the op.
            ProgramError: an op breaks a rule of the tree; names the op and the rule.
        """
        values = dict(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else {}
        ops: Any = values.pop("ops", None)
        if not isinstance(ops, list):
            raise RequestError(f"reading a tree: got {data!r:.200}, expected an object with a list of 'ops'")
        check_version(values.pop("version", None))
        if values:
            raise RequestError(f"reading a tree: unknown {sorted(map(str, values))}, known are ['ops', 'version']")
        tree = RequestTree()
        for number, one in enumerate(cast("list[Any]", ops)):
            try:
                op = op_from_json(one)
            except RequestError as error:
                raise RequestError(f"reading a tree, op number {number}: {error}") from error
            tree.add(op)
        return tree

    def _check_kind(self, op: Op, what: str) -> None:
        match op:
            case RoleBeginOp() | RoleEndOp():
                self._check_role(op, what)
            case ForkOp() | JoinOp():
                self._check_children(op, what)
            case SelectOp(choices=choices):
                if not choices:
                    raise ProgramError(f"{what}: no choices, expected at least one")
            case DecideOp() | AcceptOp() | RetryOp() | RefuseOp():
                self._check_answer(op, what)
            case GenOp(hold=True, params=params) if params.n != 1:
                raise ProgramError(f"{what}: a held gen with n={params.n}, expected n=1")
            case MarkOp() | RewindOp():
                self._check_mark(op, what)
            case RefOp(target=target):
                if not isinstance(self.ops.get(target), GenOp | SelectOp | JoinOp):
                    raise ProgramError(f"{what}: there is no gen or select {target} to refer to, and no join")
            case EndOp():
                self._ended.add(op.branch)
            case _:
                pass

    def _check_answer(self, op: AnswerOp, what: str) -> None:
        if isinstance(op, DecideOp):
            asked = self.ops.get(op.select)
            if not isinstance(asked, SelectOp) or asked.method != "client" or not 0 <= op.index < len(asked.choices):
                raise ProgramError(f"{what}: no client select {op.select} with a choice {op.index}")
            return
        held = self.ops.get(op.gen)
        if not isinstance(held, GenOp) or not held.hold or held.branch != op.branch:
            raise ProgramError(f"{what}: there is no held gen {op.gen} on this branch")
        if isinstance(op, RetryOp) and op.params is not None and op.params.n != 1:
            raise ProgramError(f"{what}: params with n={op.params.n}, expected n=1")

    def _check_mark(self, op: MarkOp | RewindOp, what: str) -> None:
        if isinstance(op, MarkOp):
            self._marks[op.id] = self._open_role[op.branch]
            return
        if op.mark not in self._marks or self.ops[op.mark].branch != op.branch:
            raise ProgramError(
                f"{what}: there is no mark {op.mark} on this branch; it was never made or was rewound past"
            )
        self._open_role[op.branch] = self._marks[op.mark]
        for later in list(self._marks)[list(self._marks).index(op.mark) + 1 :]:
            if self.ops[later].branch == op.branch:
                del self._marks[later]

    def _check_role(self, op: RoleBeginOp | RoleEndOp, what: str) -> None:
        now = self._open_role[op.branch]
        if isinstance(op, RoleBeginOp):
            if now is not None:
                raise ProgramError(
                    f"{what}: Nested roles are not allowed: {op.role!r} inside {now!r}; end the first one"
                )
            self._open_role[op.branch] = op.role
        else:
            if now is None:
                raise ProgramError(f"{what}: no role is open; begin one first")
            self._open_role[op.branch] = None

    def _check_children(self, op: ForkOp | JoinOp, what: str) -> None:
        if isinstance(op, JoinOp):
            self._check_race(op, what)
            for child in op.children:
                if self.parents.get(child) != op.branch:
                    raise ProgramError(f"{what}: branch {child} is not a fork child of branch {op.branch}")
                if child in self._joined:
                    raise ProgramError(f"{what}: branch {child} was joined before, expected one join for a fork")
            self._joined.update(op.children)
            self._ended.update(op.children)
            return
        for child in op.children:
            if child in self.parents:
                raise ProgramError(f"{what}: branch {child} exists already, expected a new branch id")
            self.parents[child] = op.branch
            self._open_role[child] = self._open_role[op.branch]

    def _check_race(self, op: JoinOp, what: str) -> None:
        races = [name for name in ("first", "vote") if getattr(op, name) is not None]
        if races and (op.mode != "gather" or len(races) > 1):
            raise ProgramError(
                f"{what}: {' and '.join(races)} in mode {op.mode!r}, expected one of them, in mode 'gather'"
            )
        if op.first is not None and not 1 <= op.first <= len(op.children):
            raise ProgramError(f"{what}: first={op.first}, expected 1 to {len(op.children)}, the number of children")


class Program(Protocol):
    """One running program inside a backend. Branch 0 exists from the start."""

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops, in order; never waits for their results. Every op gets exactly one `OpDone` or `OpFailed`."""
        ...

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop what runs on these branches and their descendants (None: all); their open ops fail as cancelled."""
        ...

    def close(self) -> None:
        """The program will append nothing more; open ops still finish. Idempotent. Sent after all answers."""
        ...


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One row of a template: its arguments by name, where its events go, and its program's seed (see `open_program`)."""

    arguments: Mapping[str, str]
    sink: EventSink
    seed: int | None = None


@runtime_checkable
class SeededProgram(Protocol):
    """A program that says from which seed its ops derive theirs; not every backend has one."""

    seed: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a backend found in a tree before it runs. `op` None: about the whole tree. An `error` will fail, for sure."""

    op: int | None
    severity: Literal["error", "warning", "info"]
    message: str


@runtime_checkable
class Backend(Protocol):
    """What executes programs: an in-process engine, a server, a hosted API, a script."""

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Program:
        """Start a program whose events go to `sink`. `seed`: from which every op without its own seed derives one."""
        ...

    def flush_cache(self) -> bool:
        """Forget all reusable prefixes; False where there are none to forget or requests are running."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """The effective configuration and counters."""
        ...

    def shutdown(self) -> None:
        """End the backend; open ops fail with `EngineStoppedError`. Idempotent."""
        ...


@runtime_checkable
class RowsBackend(Protocol):
    """A backend that takes a whole tree once, and rows of arguments for it; not every one can."""

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
        """Start a program for each row, closed from the beginning: `tree` with the row's arguments, see `bound`.

        Events of a row go to its sink, with the op ids of the tree. The returned programs can be cancelled; nothing
        can be appended to them. A row whose arguments do not fit fails alone.
        """
        ...


@runtime_checkable
class ChatBackend(Protocol):
    """A backend that knows how its model writes tool calls and thinking; of any other the common forms are taken."""

    def chat_format(self) -> ChatFormat:
        """The format of the model's dialogues; at hand, so that asking never waits."""
        ...


@runtime_checkable
class TreeChecker(Protocol):
    """A backend that can look at a tree before it runs; not every one can."""

    def check(self, tree: RequestTree) -> list[Finding]:
        """Empty grammars, unreachable stops, more tokens than the context, bounds of tokens and KV; runs nothing."""
        ...
