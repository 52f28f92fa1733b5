"""One program on a hosted API: executes ops on branches of text and turns; it knows no API, only an `Asker`.

Everything below `append`, `cancel` and `close` runs on the event loop of the process, one task for each busy branch.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sglang_lite import choice_scoring
from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, ProgramError
from sglang_lite.lang.backends.hosted.asking import Answered, Asker, rows_of, score_meta
from sglang_lite.lang.backends.hosted.branch import HostedBranch
from sglang_lite.lang.backends.hosted.checker import Checker
from sglang_lite.lang.backends.hosted.contents import Contents
from sglang_lite.lang.backends.http_client import BackgroundLoop
from sglang_lite.race import Outcome, Race
from sglang_lite.request_tree import (
    AcceptOp,
    AnswerOp,
    ArgOp,
    CountOp,
    DecideOp,
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
)

logger = logging.getLogger(__name__)

RoleText = Callable[[str, Sequence[str]], tuple[str, str]]
"""How a role's turn begins and ends where it is shown as text, given the roles of the turns before it."""


class HostedProgram:
    """One running program.

    Args:
        role_text: how turns are written out.
        describe: from a client's error to the one that the program meets.
        seed: from which every call's seed derives; None: calls have none.
    """

    def __init__(
        self,
        asker: Asker,
        checker: Checker,
        loop: BackgroundLoop,
        sink: EventSink,
        *,
        role_text: RoleText,
        describe: Callable[[Exception], Exception],
        num_speculated: int | None,
        seed: int | None,
    ) -> None:
        self._asker = asker
        self._checker = checker
        self._loop = loop
        self._sink = sink
        self._role_text = role_text
        self._describe = describe
        self._num_speculated = num_speculated
        self._seed = seed
        root = HostedBranch(0, is_begun=True)
        self._branches: dict[int, HostedBranch] = {0: root}
        self._marks: dict[int, Contents] = {}
        self._forks: dict[int, int] = {}
        """The fork op of each child, by branch."""
        self._results: dict[int, asyncio.Future[str]] = {}
        self._answers: dict[int, asyncio.Future[AnswerOp]] = {}
        self._pulse = asyncio.Event()
        self._num_finished = 0

    @property
    def waits_for_turns(self) -> bool:
        """True where calls write ahead: they have to know what follows."""
        return self._num_speculated is not None

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; see `Program.append`.

        Raises:
            UnsupportedError: the API cannot do one of them; none was sent.
        """
        taken = list(ops)
        self._checker.check(taken)
        self._loop.call(lambda: self._take(taken))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """See `Program.cancel`."""
        wanted = None if branches is None else set(branches)
        error = CancelledError("running on a hosted API: cancelled")
        self._loop.call(lambda: self._end(wanted, error))

    def close(self) -> None:
        """See `Program.close`: tasks end with their ops, so there is nothing to do."""

    def stop(self) -> None:
        """The backend was shut down: everything open fails, and what comes later."""
        error = EngineStoppedError("running on a hosted API: its backend was shut down")
        self._loop.call(lambda: self._end(None, error))

    # --- on the loop ---

    def _take(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, DecideOp | AcceptOp | RetryOp | RefuseOp):
                self._answer(op)
                continue
            branch = self._branches[op.branch]
            if isinstance(op, ForkOp):
                for child in op.children:
                    self._branches[child] = HostedBranch(child, op.branch)
                    self._forks[child] = op.id
            branch.queue.append(op)
            branch.idle.clear()
        for branch in list(self._branches.values()):
            self._wake(branch)

    def _answer(self, op: AnswerOp) -> None:
        asked = self._answers.pop(op.select if isinstance(op, DecideOp) else op.gen, None)
        if asked is None or asked.done():
            self._emit(OpFailed(op.id, CancelledError("answering a gen or select that is not open any more")))
            return
        self._emit(OpDone(op.id))
        asked.set_result(op)

    def _wake(self, branch: HostedBranch) -> None:
        if branch.task is None and branch.is_begun:
            if branch.queue:
                branch.task = asyncio.get_running_loop().create_task(self._work(branch))
            elif not branch.idle.is_set():
                self._rest(branch)

    def _rest(self, branch: HostedBranch) -> None:
        branch.task = None
        self._num_finished += 1
        branch.finished_at = self._num_finished
        branch.idle.set()
        self._pulse.set()

    async def _work(self, branch: HostedBranch) -> None:
        """Do the ops of one branch, in order, until there are none."""
        while branch.queue:
            op = branch.queue.popleft()
            try:
                if branch.error is not None:
                    raise branch.error
                done = await self._do(op, branch)
                if branch.error is not None:  # cancelled while the result came
                    raise branch.error
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None, "a branch works outside a task"
                task.uncancel()
                branch.error = branch.error or CancelledError("running on a hosted API: cancelled")
                self._fail(op, branch)
            except Exception as error:  # noqa: BLE001 - any error of a client ends the op, and is reported with it
                branch.error = branch.error or self._describe(error)
                self._fail(op, branch)
            else:
                self._emit(done)
        self._rest(branch)

    def _fail(self, op: Op, branch: HostedBranch) -> None:
        assert branch.error is not None, f"op {op.id} fails without an error"
        self._answers.pop(op.id, None)
        if isinstance(op, ForkOp):
            for child in op.children:
                self._begin(self._branches[child], branch.contents, branch.error)
        self._emit(OpFailed(op.id, branch.error))

    def _begin(self, child: HostedBranch, contents: Contents, error: Exception | None) -> None:
        child.contents = child.start = replace(contents, ahead=None)
        child.error = child.error or error
        child.is_begun = True
        self._wake(child)

    def _emit(self, event: Event) -> None:
        if isinstance(event, OpDone | OpFailed):
            result = self._result(event.op)
            if not result.done():
                if isinstance(event, OpDone):
                    result.set_result(event.text)
                else:
                    result.set_exception(event.error)
                    result.exception()  # read here: nobody may want it
        self._sink(event)

    def _result(self, op: int) -> asyncio.Future[str]:
        if op not in self._results:
            self._results[op] = asyncio.get_running_loop().create_future()
        return self._results[op]

    def _end(self, wanted: set[int] | None, error: Exception) -> None:
        """End branches and what was forked from them."""
        ending = set(self._branches) if wanted is None else set(wanted)
        for branch in self._branches.values():  # parents come before their children
            if branch.parent in ending:
                ending.add(branch.number)
        for number in ending & set(self._branches):
            branch = self._branches[number]
            branch.error = branch.error or error
            if branch.task is not None:
                branch.task.cancel()
        self._pulse.set()

    # --- ops ---

    async def _do(self, op: Op, branch: HostedBranch) -> OpDone:
        match op:
            case GenOp():
                return await self._generate(op, branch)
            case SelectOp():
                return await self._select(op, branch)
            case TextOp(text=text):
                return self._add(op, branch, text)
            case RefOp(target=target):
                text = op.text_of(await asyncio.shield(self._result(target)))
                return self._add(op, branch, text)
            case RoleBeginOp(role=role, fields=fields):
                shown = self._role_text(role, branch.contents.roles)[0]
                branch.contents = branch.contents.with_role(role, shown, json.loads(fields) if fields else {})
                return OpDone(op.id, shown)
            case RoleEndOp():
                shown = self._role_text(branch.contents.role or "", branch.contents.roles)[1]
                branch.contents = branch.contents.without_role(shown)
                return OpDone(op.id, shown)
            case ForkOp(children=children):
                for child in children:
                    self._begin(self._branches[child], branch.contents, None)
                return OpDone(op.id)
            case JoinOp():
                return await self._join(op, branch)
            case _:
                return await self._do_rare(op, branch)

    async def _do_rare(self, op: Op, branch: HostedBranch) -> OpDone:
        match op:
            case MarkOp():
                self._marks[op.id] = branch.contents
            case RewindOp(mark=mark):
                later = {
                    child
                    for child, fork in self._forks.items()
                    if fork > mark
                    and self._branches[child].parent == branch.number
                    and not self._branches[child].is_joined
                }
                self._end(later, CancelledError("running on a hosted API: its fork was rewound"))
                branch.contents = replace(self._marks[mark], ahead=None)
            case TemplateOp(variables=variables):
                branch.contents = branch.contents.with_variables(json.loads(variables))
            case CountOp():
                number = await self._asker.count(branch.contents)
                return OpDone(op.id, meta={"num_tokens": number, "context_len": None})
            case ArgOp(name=name):
                raise ProgramError(
                    f"executing op {op.id}: the argument {name!r} has no value; run the program with one"
                )
            case _:
                pass
        return OpDone(op.id)

    def _add(self, op: Op, branch: HostedBranch, text: str) -> OpDone:
        """Text of the program; where a call wrote ahead, it has to be what was written."""
        ahead = branch.contents.ahead
        left = None if ahead is None else ahead.after_text(text)
        if ahead is not None and left is None and branch.contents.role is not None and branch.contents.turn:
            raise ExecutionError(
                f"appending {text[:40]!r} in a turn that was written ahead: it went on with {ahead.text[:40]!r}; append the "
                "whole turn before reading from it, so that it can be asked for again"
            )
        branch.contents = replace(branch.contents.with_text(text), ahead=left)
        return OpDone(op.id, text)

    def _seed_of(self, op: Op, attempt: int = 0) -> int | None:
        if self._seed is None:
            return None
        digest = hashlib.sha256(f"{self._seed}/{op.branch}/{op.id}/{attempt}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    async def _generate(self, op: GenOp, branch: HostedBranch) -> OpDone:
        params, attempt = op.params, 0
        on_text: Callable[[str], None] | None = None
        if op.stream and not op.hold:

            def show(text: str) -> None:
                self._emit(OpDelta(op.id, text))

            on_text = show
        while True:
            answered = await self._asker.generate(
                op,
                params,
                branch.contents,
                list(branch.queue),
                self._num_speculated,
                self._seed_of(op, attempt),
                on_text,
            )
            if not op.hold:
                return self._finish(op, branch, answered)
            answer = await self._ask(op.id, OpHeld(op.id, answered.text, meta=answered.meta))
            match answer:
                case AcceptOp():
                    return self._finish(op, branch, answered)
                case RefuseOp(message=message):
                    raise ExecutionError(message)
                case RetryOp(text=text, params=changed, keep=keep):
                    attempt += 1
                    params = changed or params
                    branch.contents = _corrected(branch.contents, answered.text if keep else None, text)
                case DecideOp():
                    raise AssertionError(f"op {op.id} is a gen and got a decision")

    async def _ask(self, op: int, event: Event) -> AnswerOp:
        future: asyncio.Future[AnswerOp] = asyncio.get_running_loop().create_future()
        self._answers[op] = future
        self._emit(event)
        return await future

    def _finish(self, op: GenOp | SelectOp, branch: HostedBranch, answered: Answered) -> OpDone:
        branch.contents = replace(branch.contents.with_answer(answered.text, answered.calls), ahead=answered.ahead)
        if op.name is not None:
            branch.named[op.name] = answered.text
        meta: dict[str, Any] = {"id": f"hosted-{op.id}", "cached_tokens": 0, "forced_tokens": 0, **answered.meta}
        return OpDone(op.id, answered.text, answered.value, meta=meta)

    async def _select(self, op: SelectOp, branch: HostedBranch) -> OpDone:
        if op.method != "client":
            return self._finish(op, branch, await self._asker.select(op, branch.contents, self._seed_of(op)))
        rows, meta = await self._asker.scores(op, branch.contents)
        meta |= score_meta([choice_scoring.mean(row) for row in rows_of(rows)], rows)
        answer = await self._ask(op.id, OpScored(op.id, meta))
        assert isinstance(answer, DecideOp), f"op {op.id} is a select and got {answer!r}"
        chosen = op.choices[answer.index]
        return self._finish(op, branch, Answered(chosen, chosen, meta))

    # --- joins ---

    async def _join(self, op: JoinOp, branch: HostedBranch) -> OpDone:
        children = [self._branches[number] for number in op.children]
        for child in children:
            child.is_joined = True
        if op.first is not None or op.vote is not None:
            outcome = await self._race(op, children)
            losers = {child.number for i, child in enumerate(children) if i not in outcome.winners}
            self._end(
                {n for n in losers if not self._branches[n].has_finished},
                CancelledError("running on a hosted API: others won"),
            )
            return OpDone(op.id, value=outcome.value, meta=outcome.meta())
        for child in children:
            await child.idle.wait()
        if op.mode == "gather":
            return OpDone(op.id)
        before = branch.contents
        for child in children:
            if child.error is not None:
                raise child.error
            branch.contents = branch.contents.with_child(child.start, child.contents)
        return OpDone(op.id, branch.contents.text[len(before.text) :])

    async def _race(self, op: JoinOp, children: list[HostedBranch]) -> Outcome:
        race = Race(op)
        while True:
            self._pulse.clear()
            ended = [(c.finished_at, i) for i, c in enumerate(children) if c.has_finished and race.is_open(i)]
            for _, index in sorted(ended):
                child = children[index]
                if child.error is not None:
                    race.fail(index, child.error)
                else:
                    race.finish(index, child.named.get(op.vote or ""))
            outcome = race.outcome()
            if outcome is not None:
                return outcome
            await self._pulse.wait()


def _corrected(before: Contents, rejected: str | None, text: str) -> Contents:
    """Where a rejected attempt is tried again: in a turn the correction is a turn of the user's before it."""
    if before.role is not None and not before.turn.strip():
        return before.with_correction(rejected, text, (rejected or "") + text)
    return before.with_text((rejected or "") + text)
