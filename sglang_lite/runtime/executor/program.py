"""One program in execution: its branches, its op queues and what each op becomes; knows no scheduler internals."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sglang_lite.errors import CancelledError, ProgramError, SglangLiteError
from sglang_lite.request_tree import (
    ArgOp,
    DecideOp,
    EndOp,
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    LogprobParams,
    Op,
    OpDone,
    OpFailed,
    RefOp,
    RequestTree,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.gen import GenRun
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.leases import BranchLeases
from sglang_lite.runtime.executor.ports import RequestPort, TextParts
from sglang_lite.runtime.executor.select import SelectRun
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, ReqOutput

logger = logging.getLogger(__name__)


class RunningProgram:
    """Executes the ops of one program, branch by branch; every op ends in exactly one `OpDone` or `OpFailed`.

    All methods run on the engine's thread. A branch executes its ops in order; an op with a request (gen, select)
    makes the branch wait, the others are done at once. Branches run side by side.
    """

    def __init__(
        self, name: str, sink: EventSink, seed: int, port: RequestPort, text: TextParts, tickets: Iterator[int]
    ) -> None:
        self.name = name
        self._sink = sink
        self._seed = seed
        self._port = port
        self._text = text
        self._tree = RequestTree()
        self._branches: dict[int, Branch] = {0: Branch(0, None)}
        self._runs: dict[int, GenRun | SelectRun] = {}
        """Ops whose requests are under way, by branch id."""
        self._leases = BranchLeases(name, tickets, port.send)
        self._joins: list[tuple[Branch, JoinOp]] = []
        self._refs: list[tuple[Branch, RefOp]] = []
        self._results: dict[int, str | Exception] = {}
        """Text or error of every gen and select that is over, for the ops that refer to it."""
        self._ready: deque[Branch] = deque()
        self._is_advancing = False
        self._is_closed = False

    @property
    def is_over(self) -> bool:
        """Closed, and nothing is left to do."""
        return self._is_closed and all(branch.is_idle for branch in self._branches.values())

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
            if isinstance(op, DecideOp):
                self._decide(op, branch)
                continue
            if isinstance(op, ForkOp):
                for child in op.children:
                    self._branches[child] = Branch(child, branch)
                self._leases.forked(tuple(self._branches[child] for child in op.children))
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

    def close(self) -> None:
        """No further ops come."""
        self._is_closed = True

    def end(self) -> None:
        """Give up the leases on the program's prefixes; called once, when it is over."""
        self._leases.end()

    def _emit(self, event: Event) -> None:
        """Report an event; a sink that raises, against its contract, loses its own event and harms no other program."""
        if isinstance(event, OpDone | OpFailed) and isinstance(self._tree.ops.get(event.op), GenOp | SelectOp):
            self._results[event.op] = event.text if isinstance(event, OpDone) else event.error
        try:
            self._sink(event)
        except Exception:
            logger.exception("program %s: its sink failed on %r", self.name, event)

    def _refuse(self, op: Op, error: Exception) -> None:
        self._emit(OpFailed(op.id, error))
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
            while self._ready or self._settle_refs() or self._settle_joins():
                while self._ready:
                    self._run_ops(self._ready.popleft())
        finally:
            self._is_advancing = False

    def _run_ops(self, branch: Branch) -> None:
        """Run ops of `branch` until one has to wait."""
        while branch.queue and branch.running is None and branch.is_born:
            op = branch.queue.popleft()
            if branch.failed is not None:
                for child in self._skip(branch, op):
                    self._fail(child, branch.failed)
                continue
            try:
                self._execute(branch, op)
            except SglangLiteError as error:
                self._emit(OpFailed(op.id, error))
                self._fail(branch, error)
            branch.num_ops += 1

    def _skip(self, branch: Branch, op: Op) -> list[Branch]:
        """Fail `op` of a failed branch; returns its fork children, which share the branch's fate."""
        assert branch.failed is not None, f"branch {branch.id}: only ops of a failed branch are skipped"
        self._emit(OpFailed(op.id, branch.failed))
        return [self._branches[child] for child in op.children] if isinstance(op, ForkOp) else []

    def _execute(self, branch: Branch, op: Op) -> None:
        match op:
            case TextOp(text=text, literal=literal):
                branch.add_text(text, literal=literal)
                self._emit(OpDone(op.id, text=text))
            case RoleBeginOp(role=role):
                self._emit(OpDone(op.id, text=branch.begin_role(role, self._text.chat)))
            case RoleEndOp():
                self._emit(OpDone(op.id, text=branch.end_role(self._text.chat)))
            case GenOp() | SelectOp():
                self._start(branch, op)
            case ForkOp(children=children):
                self._emit(OpDone(op.id))
                for child in children:
                    self._branches[child].copy_from(branch, self._text.tokenizer)
                    self._advance(self._branches[child])
            case JoinOp():
                self._join(branch, op)
            case RefOp():
                branch.running = op
                self._refs.append((branch, op))
            case ArgOp(name=name):
                raise ProgramError(
                    f"executing op {op.id}: the argument {name!r} has no value; run the program with one"
                )
            case EndOp():
                branch.is_ended = True
                self._emit(OpDone(op.id))
            case _:
                raise AssertionError(f"{type(op).__name__} is not an op that a queue holds")

    def _join(self, branch: Branch, op: JoinOp) -> None:
        """Mode `gather` needs nothing of the children; `concat` waits until they have run out of ops."""
        for child in op.children:
            self._branches[child].is_ended = True
        if op.mode == "gather":
            self._emit(OpDone(op.id))
        else:
            branch.running = op
            self._joins.append((branch, op))

    def _settle_joins(self) -> bool:
        """End every join whose children have run out of ops; False: there was none."""
        waiting, self._joins = self._joins, []
        for branch, op in waiting:
            children = [self._branches[child] for child in op.children]
            if branch.running is not op:
                continue  # its branch has failed
            if not all(child.is_born and child.is_idle for child in children):
                self._joins.append((branch, op))
                continue
            branch.running = None
            failed = next((child.failed for child in children if child.failed is not None), None)
            if failed is not None:
                self._emit(OpFailed(op.id, failed))
                self._fail(branch, failed)
            else:
                text = "".join(part for child in children for part in child.text_since_fork)
                branch.add_text(text, literal=True)
                self._emit(OpDone(op.id, text=text))
            self._ready.append(branch)
        return bool(self._ready)

    def _settle_refs(self) -> bool:
        """End every op whose target is over; False: there was none."""
        waiting, self._refs = self._refs, []
        for branch, op in waiting:
            result = self._results.get(op.target)
            if branch.running is not op:
                continue  # its branch has failed
            if result is None:
                self._refs.append((branch, op))
                continue
            branch.running = None
            if isinstance(result, str):
                text = op.text_of(result)
                branch.add_text(text, literal=True)
                self._emit(OpDone(op.id, text=text))
            else:
                self._emit(OpFailed(op.id, result))
                self._fail(branch, result)
            self._ready.append(branch)
        return bool(self._ready)

    def _start(self, branch: Branch, op: GenOp | SelectOp) -> None:
        """Start the requests of `op`; the branch waits for it."""
        started: list[tuple[AddReq, Generation]] = []
        lease, next_use = self._leases.needed(branch)

        def submit(
            ids: tuple[int, ...],
            params: SamplingParams,
            *,
            logprob: LogprobParams | None = None,
            choices: tuple[tuple[int, ...], ...] | None = None,
        ) -> Generation:
            req = AddReq(
                rid=self._port.new_rid(),
                input_ids=ids,
                sampling=params,
                logprob=logprob,
                choices=choices,
                is_continuing=branch.has_run,
                lease=lease,
                next_use=next_use,
            )
            started.append((req, Generation(req.rid, len(ids), self._text.visible_bytes)))
            return started[-1][1]

        run = (
            GenRun(op, branch, self._seed, self._text, submit)
            if isinstance(op, GenOp)
            else SelectRun(op, branch, self._text, submit)
        )
        branch.running = op
        branch.has_run = branch.has_own_run = True
        self._runs[branch.id] = run
        for req, generation in started:
            self._port.submit(req, self._receiver(branch, run, generation))

    def _receiver(self, branch: Branch, run: GenRun | SelectRun, generation: Generation) -> Callable[[ReqOutput], None]:
        def on_output(out: ReqOutput) -> None:
            if self._runs.get(branch.id) is not run:
                return  # the op was cancelled or failed; late outputs have no reader
            if (delta := run.take(generation, out)) is not None:
                self._emit(delta)
            if out.finished is not None and out.finished.kind == "abort":
                error = out.finished.error or CancelledError(f"request {out.rid} was aborted")
                self._fail(branch, error)
                self._advance(branch)
                self._leases.review()
            elif run.is_complete:
                self._complete(branch, run)

        return on_output

    def _complete(self, branch: Branch, run: GenRun | SelectRun) -> None:
        if isinstance(run, SelectRun) and run.op.method == "client":
            self._emit(run.scored())
            return
        self._settle(branch, run.finish(branch))

    def _decide(self, op: DecideOp, branch: Branch) -> None:
        run = self._runs.get(branch.id)
        if not isinstance(run, SelectRun) or run.op.id != op.select:
            self._emit(OpFailed(op.id, branch.failed or CancelledError("the select that this decides is over")))
            return
        self._emit(OpDone(op.id))
        self._settle(branch, run.finish(branch, op.index))

    def _settle(self, branch: Branch, done: OpDone) -> None:
        del self._runs[branch.id]
        branch.running = None
        self._emit(done)
        self._advance(branch)
        self._leases.review()

    def _fail(self, branch: Branch, error: Exception) -> None:
        """Nothing more can run on `branch`: its requests are aborted, its open ops and unborn children fail."""
        doomed = [(branch, error)]
        while doomed:
            current, cause = doomed.pop()
            if current.failed is None:
                current.failed = cause
            if (run := self._runs.pop(current.id, None)) is not None:
                for generation in run.generations:
                    if generation.finished is None:
                        self._port.send(AbortReq(generation.rid))
            if current.running is not None:
                self._emit(OpFailed(current.running.id, cause))
                current.running = None
            current.is_born = True
            while current.queue:
                doomed += [(child, current.failed) for child in self._skip(current, current.queue.popleft())]
