"""A program on several backends: each branch's ops go to the program that runs it; it executes nothing itself.

A branch on another backend is the root of a program of its own there, which begins with the history of the branch as
text. Everything else looks to the language like one program: one tree, one row of op ids, one sink.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sglang_lite.errors import CancelledError, ExecutionError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.race import Outcome, Race, voting_op
from sglang_lite.request_tree import (
    AnswerOp,
    ArgOp,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    OpDone,
    OpFailed,
    Program,
    RefOp,
    RequestTree,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)


@dataclass(slots=True)
class _Foreign:
    """A program on another backend, whose root is `branch` here. `history`: what it begins with, once that is done."""

    program: Program
    branch: int
    history: list[OpFuture] = field(default_factory=list[OpFuture])
    has_begun: bool = False


class RoutedProgram:
    """A `Program` over several. May be called on any thread.

    Args:
        base: runs the branches that no other backend has.
        tree, futures: of the session, which have every op and what became of it.
        sink: of the session.
        give_up: fails a branch of the session, its open ops and those that come.
    """

    def __init__(
        self,
        base: Program,
        tree: RequestTree,
        futures: Mapping[int, OpFuture],
        sink: EventSink,
        give_up: Callable[[int, Exception], None],
    ) -> None:
        self._base = base
        self._tree = tree
        self._futures = futures
        self._sink = sink
        self._give_up = give_up
        self._lock = threading.RLock()
        self._foreign: dict[int, _Foreign] = {}
        """By every branch that runs there."""
        self._texts: dict[int, list[OpFuture]] = {}
        """Of a join by text: the ops whose texts it appends."""
        self._races: dict[int, Race] = {}
        self._doomed: set[int] = set()
        """Branches that were cancelled: their ops fail here."""
        self._waiting: list[Op] = []
        self._is_closed = self._was_passed_on = False
        """No ops come; the programs have been told so."""
        self._is_reviewing = False
        self._is_stale = False

    def add(self, branch: int, program: Program, history: Sequence[OpFuture]) -> None:
        """The fork child `branch`, which has no ops yet, runs as `program`, after this history."""
        with self._lock:
            self._foreign[branch] = _Foreign(program, branch, list(history))

    def joins_text(self, op: int, futures: Sequence[OpFuture]) -> None:
        """The join by text that is to come as `op` appends the texts of these ops."""
        with self._lock:
            self._texts[op] = list(futures)

    # --- Program ---

    def append(self, ops: Sequence[Op]) -> None:
        """See `Program.append`."""
        with self._lock:
            self._waiting.extend(ops)
        self.review()

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """See `Program.cancel`."""
        with self._lock:
            doomed = set(self._tree.parents) if branches is None else self._families(branches)
            self._doomed |= doomed
            if branches is None:
                self._base.cancel()
            elif native := [branch for branch in branches if branch not in self._foreign]:
                self._base.cancel(native)
            for branch, foreign in list(self._foreign.items()):
                if branch in doomed and branch == foreign.branch:
                    foreign.program.cancel()
                elif branch in doomed and foreign.branch not in doomed:
                    foreign.program.cancel((branch,))
        self.review()

    def close(self) -> None:
        """See `Program.close`."""
        with self._lock:
            self._is_closed = True
        self.review()

    # --- sending ---

    def review(self) -> None:
        """Send what can be sent now: ops came, or others have ended."""
        with self._lock:
            self._is_stale = True
            if self._is_reviewing:
                return
            self._is_reviewing = True
            try:
                while self._is_stale:
                    self._is_stale = False
                    self._pass()
            finally:
                self._is_reviewing = False

    def _pass(self) -> None:
        for foreign in [self._foreign[op.branch] for op in self._waiting if op.branch in self._foreign]:
            self._begin(foreign)
        sent: list[tuple[Program, list[Op]]] = []
        blocked: set[int] = set()
        ops, self._waiting = self._waiting, []
        for op in ops:
            if op.branch in self._doomed:
                self._sink(OpFailed(op.id, CancelledError("the branch was cancelled by its program")))
                continue
            if isinstance(op, AnswerOp):
                ready: Op | None = op
            else:
                ready = None if self._is_behind(op, blocked) else self._made_ready(op)
            if ready is None:
                blocked.add(op.branch)
                blocked.update(op.children if isinstance(op, ForkOp) else ())
                if not self._futures[op.id].has_ended:
                    self._waiting.append(op)
                continue
            program, mapped = self._mapped(ready)
            if sent and sent[-1][0] is program:
                sent[-1][1].append(mapped)
            else:
                sent.append((program, [mapped]))
        for program, batch in sent:
            program.append(batch)
        if self._is_closed and not self._waiting and not self._was_passed_on:
            self._was_passed_on = True
            self._base.close()
            for foreign in self._roots():
                foreign.program.close()

    def _roots(self) -> Iterator[_Foreign]:
        yield from [foreign for branch, foreign in list(self._foreign.items()) if branch == foreign.branch]

    def _is_behind(self, op: Op, blocked: set[int]) -> bool:
        """Other ops must be sent first: of its branch, of branches that it ends, or the history of its program."""
        foreign = self._foreign.get(op.branch)
        waits = foreign is not None and not foreign.has_begun
        ends = isinstance(op, JoinOp) and not self._spans(op) and not blocked.isdisjoint(op.children)
        return op.branch in blocked or waits or ends

    def _begin(self, foreign: _Foreign) -> None:
        """Give a program its history, once all of that is done; if a part of it failed the branch fails, too."""
        if foreign.has_begun or not all(future.has_ended for future in foreign.history):
            return
        foreign.has_begun = True
        error = next((future.error for future in foreign.history if future.error is not None), None)
        if error is not None:
            self._give_up(foreign.branch, error)
        else:
            told = (_as_text(future) for future in foreign.history)
            foreign.program.append([op for op in told if op is not None])

    def _mapped(self, op: Op) -> tuple[Program, Op]:
        foreign = self._foreign.get(op.branch)
        if foreign is None:
            return self._base, op
        return foreign.program, replace(op, branch=0) if op.branch == foreign.branch else op

    # --- ops that tie branches together ---

    def _made_ready(self, op: Op) -> Op | None:
        """The op as its program can do it; None: it waits, or ends here."""
        match op:
            case ForkOp(children=children):
                return replace(op, children=self._inherit(op.branch, children))
            case RefOp(target=target) if self._is_elsewhere(target, op.branch):
                return self._resolved(op)
            case JoinOp() if self._spans(op):
                return self._joined(op)
            case RewindOp():
                self._drop_forked_since(op)
            case _:
                pass
        return op

    def _inherit(self, branch: int, children: Sequence[int]) -> tuple[int, ...]:
        """Children without a backend of their own run where their parent does; returns those."""
        own = tuple(child for child in children if child not in self._foreign)
        if (foreign := self._foreign.get(branch)) is not None:
            self._foreign.update(dict.fromkeys(own, foreign))
        return tuple(child for child in children if self._foreign.get(child) is self._foreign.get(branch))

    def _is_elsewhere(self, op: int, branch: int) -> bool:
        target = self._tree.ops[op]
        is_here = self._foreign.get(target.branch) is self._foreign.get(branch)
        return not is_here or (isinstance(target, JoinOp) and self._spans(target))

    def _spans(self, join: JoinOp) -> bool:
        """A child runs elsewhere than the branch that joins it."""
        return any(self._foreign.get(child) is not self._foreign.get(join.branch) for child in join.children)

    def _resolved(self, op: RefOp) -> Op | None:
        future = self._futures[op.target]
        if future.error is not None:
            self._give_up(op.branch, future.error)
        if future.done is None:
            return None
        value = future.done.value
        return TextOp(op.id, op.branch, op.text_of(value if isinstance(value, str) else future.done.text), literal=True)

    def _joined(self, op: JoinOp) -> Op | None:
        native = tuple(c for c in op.children if self._foreign.get(c) is self._foreign.get(op.branch))
        if op.first is not None or op.vote is not None:
            self._race(op)
            return None
        if op.mode == "gather":
            return replace(op, children=native)
        futures = self._texts.get(op.id, [])
        if not all(future.has_ended for future in futures):
            return None
        error = next((future.error for future in futures if future.error is not None), None)
        if error is not None:
            self._give_up(op.branch, error)
            return None
        return TextOp(op.id, op.branch, "".join(future.text_so_far for future in futures), literal=True)

    def _drop_forked_since(self, rewind: RewindOp) -> None:
        """Op ids grow, so what has a higher one than the mark came after it."""
        mine = [
            op for op in list(self._tree.ops.values()) if op.branch == rewind.branch and rewind.mark < op.id < rewind.id
        ]
        joined = {child for op in mine if isinstance(op, JoinOp) for child in op.children}
        forked = {child for op in mine if isinstance(op, ForkOp) for child in op.children}
        if dropped := [child for child in forked - joined if child in self._foreign]:
            self.cancel(dropped)

    def _race(self, op: JoinOp) -> None:
        """Children over several backends: take note of those that have ended, and end the join if that decides it."""
        race = self._races.setdefault(op.id, Race(op))
        for index, child in enumerate(op.children):
            family = self._families([child])
            ops = [self._futures[other.id] for other in list(self._tree.ops.values()) if other.branch in family]
            error = next((future.error for future in ops if future.error is not None), None)
            if not race.is_open(index):
                continue
            if error is not None:
                race.fail(index, error)
            elif all(future.has_ended for future in ops):
                race.finish(index, None if op.vote is None else self._vote(child, op.vote))
        outcome: Outcome | None = None
        try:
            outcome = race.outcome()
        except ExecutionError as error:
            self.cancel([child for index, child in enumerate(op.children) if race.is_open(index)])
            self._give_up(op.branch, error)
        if outcome is not None:
            self.cancel([child for index, child in enumerate(op.children) if race.is_open(index)])
            self._sink(OpDone(op.id, value=outcome.value, meta=outcome.meta()))

    def _vote(self, child: int, name: str) -> str | None:
        op = voting_op([op for op in list(self._tree.ops.values()) if op.branch == child], name)
        done = None if op is None else self._futures[op].done
        return None if done is None else done.value if isinstance(done.value, str) else done.text

    def _families(self, branches: Sequence[int]) -> set[int]:
        found = set(branches)
        for child, parent in list(self._tree.parents.items()):  # parents come before their children
            if parent in found:
                found.add(child)
        return found


def _as_text(future: OpFuture) -> Op | None:
    """A done op for a program that has not seen it: what was generated is literal text; None: it left no text."""
    op, done = future.op, future.done
    assert done is not None, f"op {op.id} of a history is done"
    match op:
        case TextOp() | RoleBeginOp() | RoleEndOp() | TemplateOp():
            return replace(op, branch=0)
        case GenOp() | SelectOp() | RefOp() | JoinOp() | ArgOp():
            return TextOp(op.id, 0, done.text, literal=True) if done.text else None
        case _:
            return None
