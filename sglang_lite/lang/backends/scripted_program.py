"""One program on a `ScriptedBackend`: its ops in order of arrival, each done at once unless it has to wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from sglang_lite.chat_formats.calls import Call, arguments_of
from sglang_lite.chat_formats.tools import HERMES
from sglang_lite.errors import CancelledError, ExecutionError, ProgramError
from sglang_lite.lang.backends.script import Fitted, Reply, ScriptedCall, ScriptError, describe, fit, words
from sglang_lite.lang.backends.scripted_branch import Attempt, ScriptedBranch
from sglang_lite.lang.deadlines import Deadline, shared_clock
from sglang_lite.race import Race, voting_op
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
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)

Template = Literal["plain", "chatml"]


class Host(Protocol):
    """What a program needs of its backend."""

    latency_s: float
    calls: list[ScriptedCall]
    chat_template: Template

    def do(self, job: Callable[[], None], *, is_needed: bool = True) -> None:
        """Run a job on the backend's thread."""
        ...

    def answer(self, op: GenOp | SelectOp, prompt: str, params: SamplingParams | None) -> Reply:
        """The script's reply."""
        ...

    def forget(self, program: ScriptedProgram) -> None:
        """The program has nothing open any more."""
        ...


class ScriptedProgram:
    """One program; its methods for others give jobs to the backend's thread, which alone touches its state.

    A job is a step: branches that end in the same one end side by side, as far as a join with `first` is concerned.
    """

    def __init__(self, backend: Host, sink: EventSink) -> None:
        self._backend = backend
        self._to_language = sink
        self._branches: dict[int, ScriptedBranch] = {0: ScriptedBranch(0)}
        self._parents: dict[int, int] = {}
        self._waiting: list[Op] = []
        self._branch_of: dict[int, int] = {}
        self._ops_of: dict[int, list[Op]] = {}
        """Each op's branch, and each branch's ops."""
        self._results: dict[int, str | Exception] = {}
        self._joined: set[int] = set()
        self._races: dict[int, Race] = {}
        self._delayed: dict[int, Deadline] = {}
        self._due: set[int] = set()
        """Branches whose next op takes its time, with its end, and ops that have taken theirs."""
        self._step = 0
        self._is_closed = False

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; see `Program.append`."""
        taken = list(ops)
        self._backend.do(lambda: self._take(taken))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Fail what waits; see `Program.cancel`."""
        wanted = None if branches is None else set(branches)
        self._backend.do(lambda: self._cancel(wanted), is_needed=False)

    def close(self) -> None:
        """See `Program.close`."""
        self._backend.do(self._close, is_needed=False)

    def fail_all(self, error: Exception) -> None:
        """Fail everything that is open, and what comes later."""
        for branch in self._branches.values():
            self._end_branch(branch, error)
        self._advance()

    def _close(self) -> None:
        self._is_closed = True
        self._forget_if_done()

    def _forget_if_done(self) -> None:
        if self._is_closed and not self._waiting and all(b.asked is None for b in self._branches.values()):
            self._backend.forget(self)

    def _cancel(self, wanted: set[int] | None) -> None:
        error = CancelledError("running on a ScriptedBackend: cancelled")
        if wanted is None:
            self.fail_all(error)
            return
        for number in wanted & set(self._branches):
            for branch in self._family(number):
                self._end_branch(branch, error)
        self._advance()

    def _family(self, number: int) -> list[ScriptedBranch]:
        """The branch and all that were forked from it, so far."""
        found = {number}
        for child, parent in self._parents.items():  # in order of forking: parents first
            if parent in found:
                found.add(child)
        return [self._branches[n] for n in found if n in self._branches]

    def _end_branch(self, branch: ScriptedBranch, error: Exception) -> None:
        branch.error = branch.error or error
        if (deadline := self._delayed.pop(branch.number, None)) is not None:
            shared_clock.call_off(deadline)
        if (asked := branch.asked_op) is not None:
            branch.asked = branch.attempt = None
            self._sink(OpFailed(asked.id, error))

    def _drop(self, number: int, why: str) -> None:
        """The program gives up a branch and what was forked from it."""
        for branch in self._family(number):
            branch.is_dropped = branch.error is None
            self._end_branch(branch, CancelledError(f"running on a ScriptedBackend: {why}"))

    def _sink(self, event: Event) -> None:
        if isinstance(event, OpDone):
            self._results[event.op] = event.value if isinstance(event.value, str) else event.text
        elif isinstance(event, OpFailed):
            self._results[event.op] = event.error
        if (
            isinstance(event, OpDone | OpFailed)
            and (branch := self._branches.get(self._branch_of[event.op])) is not None
        ):
            branch.last_step = self._step
        self._to_language(event)

    # --- in what order ---

    def _take(self, ops: list[Op]) -> None:
        for op in ops:
            self._branch_of[op.id] = op.branch
            self._ops_of.setdefault(op.branch, []).append(op)
        self._waiting.extend(ops)
        self._advance()

    def _advance(self) -> None:
        """Execute, in order, every op that waits for nothing, as long as that lets others go on."""
        self._step += 1
        while self._pass():
            continue
        self._forget_if_done()

    def _pass(self) -> bool:
        """Go through what waits once; True when ops that were passed may go on now."""
        blocked = {number for number, branch in self._branches.items() if branch.asked is not None} | set(self._delayed)
        ops, self._waiting = self._waiting, []
        is_stale = False
        for op in ops:
            if isinstance(op, AnswerOp):
                self._answer(op)
                is_stale = True
            elif self._is_blocked(op, blocked) or self._takes_time(op):
                blocked.add(op.branch)
                blocked.update(op.children if isinstance(op, ForkOp) else ())
                self._waiting.append(op)
            elif isinstance(op, JoinOp) and not self._is_decided(op, blocked):
                blocked.add(op.branch)
                self._waiting.append(op)
            else:
                is_stale |= isinstance(op, JoinOp | RewindOp)
                self._execute(op)
                if self._branches[op.branch].asked is not None:
                    blocked.add(op.branch)
        return is_stale and bool(self._waiting)

    def _is_blocked(self, op: Op, blocked: set[int]) -> bool:
        """True when `op` waits behind an op of its branch, of a branch that it joins, or for the one that it refers to."""
        return (
            op.branch in blocked
            or (isinstance(op, JoinOp) and not _is_race(op) and bool(blocked.intersection(op.children)))
            or (isinstance(op, RefOp) and op.target not in self._results and self._branches[op.branch].error is None)
        )

    def _takes_time(self, op: Op) -> bool:
        """True when `op` has to wait for its latency, which begins now."""
        latency_s = self._backend.latency_s
        if latency_s == 0 or not isinstance(op, GenOp | SelectOp) or self._branches[op.branch].error is not None:
            return False
        if op.id in self._due:
            self._due.discard(op.id)
            return False

        def end() -> None:
            if self._delayed.get(op.branch) is deadline:
                del self._delayed[op.branch]
                self._due.add(op.id)
                self._advance()

        deadline = shared_clock.set(latency_s, lambda: self._backend.do(end, is_needed=False))
        self._delayed[op.branch] = deadline
        return True

    def _is_decided(self, op: JoinOp, blocked: set[int]) -> bool:
        """True when a join need not wait: it is no race, its branch has failed, or its race has an end."""
        if not _is_race(op) or self._branches[op.branch].error is not None:
            return True
        race = self._races.setdefault(op.id, Race(op))
        ended: list[tuple[int, int]] = []
        for index, child in enumerate(op.children):
            family = self._family(child)
            if race.is_open(index) and (self._error_of(family) or not any(b.number in blocked for b in family)):
                ended.append((max(b.last_step for b in family), index))
        for _, index in sorted(ended):
            child = op.children[index]
            if (error := self._error_of(self._family(child))) is not None:
                race.fail(index, error)
            else:
                race.finish(index, None if op.vote is None else self._vote(child, op.vote))
        try:
            return race.outcome() is not None
        except ExecutionError:
            return True  # it fails when it is executed

    def _error_of(self, family: Sequence[ScriptedBranch]) -> Exception | None:
        return next((branch.error for branch in family if branch.error is not None and not branch.is_dropped), None)

    def _vote(self, child: int, name: str) -> str | None:
        op = voting_op(self._ops_of.get(child, ()), name)
        result = None if op is None else self._results.get(op)
        return result if isinstance(result, str) else None

    # --- what ops do ---

    def _execute(self, op: Op) -> None:
        branch = self._branches[op.branch]
        if isinstance(op, ForkOp):  # children of a failed branch exist, and fail with its error
            for child in op.children:
                self._branches[child] = branch.fork(child)
                self._parents[child] = op.branch
        if branch.error is None:
            try:
                done = self._perform(op, branch)
            except Exception as error:  # noqa: BLE001 - the script's function is the user's code: its error is the op's
                branch.error = error
            else:
                if done is not None:
                    branch.text += done.text
                    self._sink(done)
                return
        self._sink(OpFailed(op.id, branch.error))

    def _perform(self, op: Op, branch: ScriptedBranch) -> OpDone | None:
        """Do one op; None: its end comes later.

        Raises:
            Exception: why it fails.
        """
        match op:
            case TextOp(text=text):
                return OpDone(op.id, text)
            case RoleBeginOp(role=role, fields=fields):
                branch.role, branch.ending = role, _calls_text(fields)
                return OpDone(op.id, _role_text(self._backend.chat_template, role)[0])
            case RoleEndOp():
                role, branch.role = branch.role, None
                return OpDone(op.id, branch.ending + _role_text(self._backend.chat_template, role or "")[1])
            case RefOp(target=target):
                result = self._results[target]
                if isinstance(result, Exception):
                    raise result
                return OpDone(op.id, op.text_of(result))
            case ArgOp(name=name):
                raise ProgramError(
                    f"executing op {op.id}: the argument {name!r} has no value; run the program with one"
                )
            case GenOp():
                return self._generate(op, branch)
            case SelectOp():
                return self._select(op, branch)
            case _:
                return self._perform_edge(op, branch)

    def _perform_edge(self, op: Op, branch: ScriptedBranch) -> OpDone:
        """The ops that tie branches together or ask about one."""
        match op:
            case JoinOp(children=children):
                self._joined.update(children)
                return self._join(op)
            case MarkOp():
                branch.mark(op.id)
            case RewindOp(mark=mark):
                for child in branch.rewind(mark):
                    if child not in self._joined:
                        self._drop(child, "a rewind of its parent went back past the fork")
            case CountOp():
                return OpDone(op.id, meta={"num_tokens": len(words(branch.text)), "context_len": None})
            case _:
                pass
        return OpDone(op.id)

    def _join(self, op: JoinOp) -> OpDone:
        if _is_race(op):
            return self._end_race(op)
        joined = [self._branches[child] for child in op.children]
        if op.mode == "gather":
            return OpDone(op.id)
        for child in joined:
            if child.error is not None:
                raise child.error
        return OpDone(op.id, "".join(child.text[child.forked_at :] for child in joined))

    def _end_race(self, op: JoinOp) -> OpDone:
        race = self._races.pop(op.id)
        winners: tuple[int, ...] = ()
        try:
            outcome = race.outcome()
            assert outcome is not None, f"join {op.id} is executed once it is decided"
            winners = outcome.winners
        finally:
            for index, child in enumerate(op.children):
                if index not in winners and race.is_open(index):
                    self._drop(child, f"join {op.id} was decided without this branch")
        return OpDone(op.id, value=outcome.value, meta=outcome.meta())

    def _generate(self, op: GenOp, branch: ScriptedBranch) -> OpDone | None:
        attempt = branch.attempt
        params = op.params if attempt is None else attempt.params
        fitted = self._replies(op, params, branch)
        if op.hold:
            attempt = branch.attempt or Attempt(op, params)
            attempt.held, branch.asked, branch.attempt = fitted[0], attempt, attempt
            self._sink(OpHeld(op.id, fitted[0].text, meta=_gen_meta(op, branch, fitted)))
            return None
        if op.stream:
            for piece in words(fitted[0].text):
                self._sink(OpDelta(op.id, piece))
        values = [one.text for one in fitted]
        return OpDone(op.id, values[0], values if params.n > 1 else values[0], meta=_gen_meta(op, branch, fitted))

    def _replies(self, op: GenOp, params: SamplingParams, branch: ScriptedBranch) -> list[Fitted]:
        reply = self._backend.answer(op, branch.text, params)
        call = self._backend.calls[-1]
        raw = [reply] * params.n if isinstance(reply, str) else reply
        if isinstance(raw, Exception) or len(raw) != params.n:
            raise ScriptError(f"{describe(call)}: got {reply!r}, expected a text or a list of {params.n} texts")
        return [fit(text, params, call) for text in raw]

    def _select(self, op: SelectOp, branch: ScriptedBranch) -> OpDone | None:
        reply = self._backend.answer(op, branch.text, None)
        if reply not in op.choices:
            call = self._backend.calls[-1]
            raise ScriptError(f"{describe(call)}: the reply {reply!r} is none of the choices {list(op.choices)}")
        meta = _scores(op.choices, op.choices.index(str(reply)))
        if op.method == "client":
            branch.asked = op
            if op.needs_unconditional:
                meta["unconditional_token_logprobs"] = [[[None, 0, choice]] for choice in op.choices]
            self._sink(OpScored(op.id, meta))
            return None
        return OpDone(op.id, str(reply), str(reply), meta=meta | _counts(op.id, branch.text, 1))

    # --- answers ---

    def _answer(self, op: AnswerOp) -> None:
        branch = self._branches[op.branch]
        asked, of = branch.asked, branch.asked_op
        target = op.select if isinstance(op, DecideOp) else op.gen
        if asked is None or of is None or of.id != target:
            self._sink(OpFailed(op.id, branch.error or CancelledError(f"op {target} does not wait for an answer")))
            return
        branch.asked = None
        self._sink(OpDone(op.id))
        if isinstance(asked, SelectOp):
            assert isinstance(op, DecideOp), f"{type(op).__name__} is no answer to a select"
            self._decide(asked, op.index, branch)
            return
        assert asked.held is not None, f"gen {target} has an attempt that waits"
        match op:
            case AcceptOp():
                self._accept(asked, asked.held, branch)
            case RetryOp():
                self._retry(op, asked, asked.held, branch)
            case _:
                branch.attempt = None
                branch.error = ExecutionError("" if isinstance(op, DecideOp) else op.message)
                self._sink(OpFailed(target, branch.error))

    def _decide(self, select: SelectOp, index: int, branch: ScriptedBranch) -> None:
        choice = select.choices[index]
        meta = _scores(select.choices, index) | _counts(select.id, branch.text, 1)
        branch.text += choice
        self._sink(OpDone(select.id, choice, choice, meta=meta))

    def _accept(self, attempt: Attempt, held: Fitted, branch: ScriptedBranch) -> None:
        meta = _gen_meta(attempt.op, branch, [held]) | {"attempts": attempt.number}
        branch.attempt = None
        branch.text += held.text
        self._sink(OpDone(attempt.op.id, attempt.added + held.text, held.text, meta=meta))

    def _retry(self, op: RetryOp, attempt: Attempt, held: Fitted, branch: ScriptedBranch) -> None:
        added = held.text + op.text if op.keep else op.text
        branch.text += added
        attempt.added += added
        attempt.number += 1
        attempt.held = None
        attempt.params = op.params or attempt.op.params
        self._waiting.insert(0, attempt.op)  # everything else on its branch comes after it


def _is_race(op: JoinOp) -> bool:
    return op.first is not None or op.vote is not None


def _role_text(template: Template, role: str) -> tuple[str, str]:
    if template == "chatml":
        return f"<|im_start|>{role}\n", "<|im_end|>\n"
    return f"{role.upper()}:", "\n"


def _calls_text(fields: str | None) -> str:
    """The calls in the fields of a given turn, as a model would have written them."""
    calls = json.loads(fields).get("tool_calls") if fields else None
    functions = [call["function"] for call in calls or ()]
    return HERMES.show([Call(function["name"], arguments_of(function.get("arguments"))) for function in functions])


def _counts(number: int, prompt: str, completed: int) -> dict[str, Any]:
    return {
        "id": f"scripted-{number}",
        "prompt_tokens": len(words(prompt)),
        "completion_tokens": completed,
        "cached_tokens": 0,
        "forced_tokens": 0,
    }


def _gen_meta(op: GenOp, branch: ScriptedBranch, fitted: Sequence[Fitted]) -> dict[str, Any]:
    meta = _counts(op.id, branch.text, sum(len(words(one.text)) for one in fitted))
    return meta | {"finish_reason": fitted[0].finish_reason}


def _scores(choices: tuple[str, ...], best: int) -> dict[str, Any]:
    """Made-up log-probabilities, one token a choice, highest for the scripted one."""
    means = [-0.1 if index == best else -1.0 for index in range(len(choices))]
    return {
        "normalized_prompt_logprobs": means,
        "input_token_logprobs": [[[mean, 0, choice]] for mean, choice in zip(means, choices, strict=True)],
        "output_token_logprobs": [[] for _ in choices],
        "finish_reason": {"type": "stop", "matched": None},
    }
