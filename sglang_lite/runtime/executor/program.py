"""One program in execution: its branches, its op queues and what each op becomes; knows no scheduler internals."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence

from sglang_lite.errors import CancelledError, ProgramError, SglangLiteError
from sglang_lite.race import voting_op
from sglang_lite.request_tree import (
    AnswerOp,
    ArgOp,
    CountOp,
    EndOp,
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    OpDone,
    OpFailed,
    RefOp,
    RequestTree,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.dialogue import read_object
from sglang_lite.runtime.executor.fork_prefill import ForkPrefills
from sglang_lite.runtime.executor.gen import put_again
from sglang_lite.runtime.executor.joins import Joins
from sglang_lite.runtime.executor.leases import BranchLeases
from sglang_lite.runtime.executor.ports import RequestPort, TextParts
from sglang_lite.runtime.executor.refs import Refs
from sglang_lite.runtime.executor.runs import Runs

logger = logging.getLogger(__name__)

_WITHOUT_REQUEST = (TextOp, RoleBeginOp, RoleEndOp, TemplateOp, RefOp)
"""Ops that only add to their branch."""

_ENDS = (OpDone, OpFailed)
_WITH_RESULT = (GenOp, SelectOp, JoinOp)


class RunningProgram:
    """Executes the ops of one program, branch by branch; every op ends in exactly one `OpDone` or `OpFailed`.

    All methods run on the engine's thread. A branch executes its ops in order; an op with a request (gen, select)
    makes the branch wait, the others are done at once. Branches run side by side.
    """

    def __init__(
        self,
        name: str,
        sink: EventSink,
        seed: int,
        port: RequestPort,
        text: TextParts,
        tickets: Iterator[int],
        number: int = 0,
    ) -> None:
        self.name = name
        self._sink = sink
        self._port = port
        self._text = text
        self._tree = RequestTree()
        self._branches: dict[int, Branch] = {0: Branch(0, None)}
        self._leases = BranchLeases(name, tickets, port.send)
        self._runs = Runs(self, seed, number, port, text, self._leases)
        self._prefills = ForkPrefills(number, port, text.tokenizer, self._leases, self._go_on)
        self._joins = Joins(self, self._branches, self._vote_of)
        self._refs = Refs(self)
        self._ready: deque[Branch] = deque()
        self._step = 0
        self._is_advancing = False
        self._is_closed = False
        self._busy = self._branches[0]
        """A branch that was not idle when all were looked at."""

    @property
    def has_begun(self) -> bool:
        """Ops came to it."""
        return bool(self._tree.ops)

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing waits to be run."""
        if not self._busy.is_idle:
            return False
        for branch in self._branches.values():
            if branch.running is not None or branch.queue:
                self._busy = branch
                return False
        return True

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; those that break a rule of the tree fail at once, with everything after them on their branch."""
        touched: dict[int, Branch] = {}
        for op in ops:
            try:
                self._tree.add(op)
            except SglangLiteError as error:
                self._refuse(op, error)
                continue
            branch = self._branches[op.branch]
            if isinstance(op, AnswerOp):
                self._runs.answer(op, branch)
                continue
            if isinstance(op, ForkOp):
                for child in op.children:
                    self._branches[child] = Branch(child, branch)
                self._leases.forked(tuple(self._branches[child] for child in op.children))
            if isinstance(op, GenOp) and op.params.constraint is not None:
                self._port.prepare_grammar(op.params)  # compiled while what stands before it runs
            branch.queue.append(op)
            touched[branch.id] = branch
        self._advance(*touched.values())
        self._leases.review()

    def cancel(self, branches: Sequence[int] | None, error: SglangLiteError | None = None) -> None:
        """Stop these branches and their descendants (None: all); their open ops fail."""
        named = None if branches is None else set(branches)
        for branch in list(self._branches.values()):
            if named is None or named & set(branch.path):
                self._fail(branch, error or CancelledError("the branch was cancelled by its program"))
        self._advance()
        self._leases.review()

    def refuse(self, ops: Sequence[Op], error: SglangLiteError) -> None:
        """Fail ops that were never begun; nothing else may have been appended."""
        for op in ops:
            self.emit(OpFailed(op.id, error))

    def close(self) -> None:
        """No further ops come."""
        self._is_closed = True

    def end(self) -> None:
        """Give up the leases on the program's prefixes; called once, when it is over."""
        self._leases.end()

    def emit(self, event: Event) -> None:
        """Report an event; a sink that raises, against its contract, loses its own event and harms no other program."""
        op = self._tree.ops.get(event.op)
        if op is not None and isinstance(event, _ENDS):
            self._branches[op.branch].last_step = self._step
            if isinstance(op, _WITH_RESULT):
                self._refs.take(event)
        try:
            self._sink(event)
        except Exception:
            logger.exception("program %s: its sink failed on %r", self.name, event)

    def _refuse(self, op: Op, error: Exception) -> None:
        self.emit(OpFailed(op.id, error))
        if (branch := self._branches.get(op.branch)) is not None and not branch.is_ended:
            self._fail(branch, error)
            self._advance()

    def _advance(self, *branches: Branch) -> None:
        """Run what can run on these branches and on those that wait for them; a loop, since programs may be deep."""
        self._ready.extend(branches)
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._ready or self._settle_waiting():
                while self._ready:
                    self._run_ops(self._ready.popleft())
        finally:
            self._is_advancing = False

    def _go_on(self, branches: Sequence[Branch]) -> None:
        """These were waiting for what they share."""
        self._advance(*branches)
        self._leases.review()

    def _settle_waiting(self) -> bool:
        """End what waited for other branches; False: nothing could."""
        if not (self._refs.has_waiting or self._joins.has_waiting):
            return False
        self._ready.extend(self._refs.settle())
        if not self._ready:
            self._ready.extend(self._joins.settle_texts())
        return bool(self._ready)

    def _run_ops(self, branch: Branch, kinds: tuple[type[Op], ...] = (Op,)) -> None:
        """Run ops of `branch` until one has to wait or is of none of the `kinds`."""
        while branch.queue and branch.running is None and branch.is_born and isinstance(branch.queue[0], kinds):
            op = branch.queue.popleft()
            if branch.failed is not None:
                for child in self._skip(branch, op):
                    self._fail(child, branch.failed)
                continue
            try:
                self._execute(branch, op)
            except SglangLiteError as error:
                self.emit(OpFailed(op.id, error))
                self._fail(branch, error)
            branch.num_ops += 1

    def _skip(self, branch: Branch, op: Op) -> list[Branch]:
        """Fail `op` of a failed branch; returns its fork children, which share the branch's fate."""
        assert branch.failed is not None, f"branch {branch.id}: only ops of a failed branch are skipped"
        self.emit(OpFailed(op.id, branch.failed))
        return [self._branches[child] for child in op.children] if isinstance(op, ForkOp) else []

    def _execute(self, branch: Branch, op: Op) -> None:
        match op:
            case TextOp(text=text, ids=ids) if ids:
                put_again(op, branch, self._text)
                self.emit(OpDone(op.id, text=text))
            case TextOp(text=text, literal=literal):
                branch.add_text(text, literal=literal)
                self.emit(OpDone(op.id, text=text))
            case RoleBeginOp(role=role, fields=fields):
                self.emit(
                    OpDone(op.id, text=branch.begin_role(role, self._text.chat, fields, self._text.tokenizer.guard))
                )
            case RoleEndOp():
                self.emit(OpDone(op.id, text=branch.end_role(self._text.chat, self._text.tokenizer.guard)))
            case TemplateOp(variables=variables):
                branch.dialogue.set_variables(read_object(variables, f"the variables of op {op.id}"))
                self.emit(OpDone(op.id))
            case GenOp() | SelectOp():
                self._runs.start(branch, op)
            case _:
                self._execute_edge(branch, op)

    def _execute_edge(self, branch: Branch, op: Op) -> None:
        """The ops that tie branches together or ask about one."""
        match op:
            case ForkOp(children=children):
                self.emit(OpDone(op.id))
                branch.children.extend(children)
                born = [self._branches[child] for child in children]
                for child in born:
                    child.copy_from(branch, self._text.tokenizer)
                    self._run_ops(child, _WITHOUT_REQUEST)
                if not self._prefills.begin(branch, born):
                    self._advance(*born)
            case JoinOp():
                self._joins.begin(branch, op)
            case RefOp():
                self._refs.begin(branch, op)
            case MarkOp():
                branch.mark(op.id)
                self.emit(OpDone(op.id))
            case RewindOp():
                self._rewind(branch, op)
            case CountOp():
                self.emit(OpDone(op.id, meta=self._count(branch)))
            case ArgOp(name=name):
                raise ProgramError(
                    f"executing op {op.id}: the argument {name!r} has no value; run the program with one"
                )
            case EndOp():
                branch.is_ended = True
                self.emit(OpDone(op.id))
            case _:
                raise AssertionError(f"{type(op).__name__} is not an op that a queue holds")

    def _vote_of(self, child: int, name: str) -> str | None:
        op = voting_op([op for op in self._tree.ops.values() if op.branch == child], name)
        return None if op is None else self._refs.text_of(op)

    def _count(self, branch: Branch) -> dict[str, int | None]:
        return {"num_tokens": branch.count(self._text.tokenizer), "context_len": self._text.context_len}

    def _rewind(self, branch: Branch, op: RewindOp) -> None:
        """Restore the branch; live children forked since the mark are dropped, what a join has taken over is left."""
        for child in branch.rewind(op.mark):
            if not self._joins.is_joined(child):
                for dropped in self._joins.family(child):
                    dropped.is_dropped = dropped.failed is None
                    self._fail(dropped, CancelledError("a rewind of its parent went back past the fork"))
        self.emit(OpDone(op.id))

    def settle(self, branch: Branch, done: OpDone) -> None:
        """The gen or select that ran on `branch` is done."""
        self.emit(done)
        self._advance(branch)
        self._leases.review()

    def fail(self, branch: Branch, error: Exception) -> None:
        """`branch` has failed, now that its gen or select, ref or join has."""
        self._fail(branch, error)
        self._advance(branch)
        self._leases.review()

    def end_step(self) -> bool:
        """The outputs of one step were handed out: decide what children race for.

        Returns whether the program is over: closed, and nothing is left to do.
        """
        self._step += 1
        if self._joins.has_races and (ready := self._joins.settle_races()):
            self._advance(*ready)
            self._leases.review()
        return self._is_closed and self.is_idle

    def _fail(self, branch: Branch, error: Exception) -> None:
        """Nothing more can run on `branch`: its requests are aborted, its open ops and unborn children fail."""
        doomed = [(branch, error)]
        while doomed:
            current, cause = doomed.pop()
            if current.failed is None:
                current.failed = cause
            self._runs.abort(current)
            if current.running is not None:
                self.emit(OpFailed(current.running.id, cause))
                current.running = None
            current.is_born = True
            while current.queue:
                doomed += [(child, current.failed) for child in self._skip(current, current.queue.popleft())]
        self._prefills.drop_failed()
