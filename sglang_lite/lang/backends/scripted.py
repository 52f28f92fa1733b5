"""`ScriptedBackend`: canned replies in place of a model, so that programs can be tested without one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sglang_lite.errors import CancelledError, EngineStoppedError, ProgramError, RequestError
from sglang_lite.lang.backends.script import (
    Fitted,
    Replies,
    Reply,
    Script,
    ScriptedCall,
    ScriptError,
    describe,
    fit,
    read_script,
    words,
)
from sglang_lite.lang.deadlines import shared_clock
from sglang_lite.request_tree import (
    ArgOp,
    DecideOp,
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    RefOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TextOp,
)

Template = Literal["plain", "chatml"]


def _role_text(template: Template, role: str) -> tuple[str, str]:
    if template == "chatml":
        return f"<|im_start|>{role}\n", "<|im_end|>\n"
    return f"{role.upper()}:", "\n"


class ScriptedBackend:
    """Answers every gen and select with a canned reply, on one thread, in the order in which ops arrive.

    Args:
        replies: a list (in order of arrival), a dict by name (`"*"`: any other), or a function of the `ScriptedCall`;
            None: placeholders. An exception among them makes its op fail. A reply to a select is one of the choices.
        chat_template: how roles look: `plain` (`USER:...`) or `chatml`.
        latency_s: seconds that every gen and select takes; those of different branches take them side by side.

    Stop strings, `max_tokens` (counted in words) and constraints are respected; a reply that a constraint does not
    allow is an error. `calls` records every gen and select. With rows or threads side by side the order of arrival is
    not fixed: give replies by name or by function there.
    """

    def __init__(
        self, replies: Replies | None = None, *, chat_template: Template = "plain", latency_s: float = 0.0
    ) -> None:
        if chat_template not in ("plain", "chatml"):
            raise RequestError(f"making a ScriptedBackend: chat_template={chat_template!r}, expected plain or chatml")
        if not latency_s >= 0:
            raise RequestError(f"making a ScriptedBackend: latency_s={latency_s!r}, expected seconds >= 0")
        self.latency_s = latency_s
        self.calls: list[ScriptedCall] = []
        self.chat_template: Template = chat_template
        self.script = Script(replies)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._programs: list[_ScriptedProgram] = []
        self._is_stopped = False

    @staticmethod
    def from_file(path: str | Path, *, chat_template: Template = "plain") -> ScriptedBackend:
        """Replies from a JSON file: a list of them in order, or an object of them by name.

        Raises:
            RequestError: the file is missing or holds something else.
        """
        return ScriptedBackend(read_script(path), chat_template=chat_template)

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> _ScriptedProgram:
        """Start a program; `seed` has no effect.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        program = _ScriptedProgram(self, sink)
        with self._lock:
            self._check_running()
            self._programs.append(program)
        return program

    def do(self, job: Callable[[], None], *, is_needed: bool = True) -> None:
        """Run `job` on the backend's thread, after those given before.

        Args:
            is_needed: False: after `shutdown` it is left out.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        with self._lock:
            if self._is_stopped and not is_needed:
                return
            self._check_running()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sglang_lite-scripted", daemon=True)
                self._thread.start()
            self._jobs.put(job)

    def forget(self, program: _ScriptedProgram) -> None:
        """A program has nothing open any more."""
        with self._lock:
            if program in self._programs:
                self._programs.remove(program)

    def _check_running(self) -> None:
        if self._is_stopped:
            raise EngineStoppedError("using a ScriptedBackend: it was shut down; make a new one")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def flush_cache(self) -> bool:
        """False: there are no prefixes to forget."""
        return False

    def get_server_info(self) -> dict[str, Any]:
        """The kind of backend, its template and the number of calls so far."""
        return {"backend": "scripted", "chat_template": self.chat_template, "num_calls": len(self.calls)}

    def shutdown(self) -> None:
        """End the backend once what runs is done; what waits fails with `EngineStoppedError`. Idempotent."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            programs = list(self._programs)
            thread = self._thread

        def stop() -> None:
            for program in programs:
                program.fail_all(EngineStoppedError("running on a ScriptedBackend: it was shut down"))

        if thread is None:
            stop()
        else:
            self._jobs.put(stop)
            self._jobs.put(None)

    def answer(self, op: GenOp | SelectOp, prompt: str) -> Reply:
        """Record the call and take its reply from the script.

        Raises:
            Exception: the script has none, is an exception here, or its function raised.
        """
        is_gen = isinstance(op, GenOp)
        params = op.params if is_gen else None
        choices = op.params.choices if is_gen else op.choices
        call = ScriptedCall(len(self.calls), "gen" if is_gen else "select", op.name, prompt, params, choices)
        self.calls.append(call)
        if params is not None and params.max_new_tokens == 0:  # the prompt is all that is wanted
            call.reply = [""] * params.n if params.n > 1 else ""
            return call.reply
        call.reply = reply = self.script.next(call)
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass(slots=True)
class _Branch:
    """What a branch holds: its text, where its own text begins, and the error that ended it."""

    text: str = ""
    forked_at: int = 0
    error: Exception | None = None
    role: str | None = None
    undecided: dict[int, SelectOp] = field(default_factory=dict[int, SelectOp])


class _ScriptedProgram:
    """One program; its methods for others give jobs to the backend's thread, which alone touches its state."""

    def __init__(self, backend: ScriptedBackend, sink: EventSink) -> None:
        self._backend = backend
        self._to_language = sink
        self._branches: dict[int, _Branch] = {0: _Branch()}
        self._parents: dict[int, int] = {}
        self._waiting: list[Op] = []
        self._results: dict[int, str | Exception] = {}
        self._delayed: set[int] = set()
        self._due: set[int] = set()
        """Branches whose next op takes its time, and ops that have taken theirs."""
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

    def _close(self) -> None:
        self._is_closed = True
        self._forget_if_done()

    def _forget_if_done(self) -> None:
        if self._is_closed and not self._waiting and not any(b.undecided for b in self._branches.values()):
            self._backend.forget(self)

    def _cancel(self, wanted: set[int] | None) -> None:
        error = CancelledError("running on a ScriptedBackend: cancelled")
        if wanted is None:
            self.fail_all(error)
            return
        for child, parent in self._parents.items():  # in order of forking: parents first
            if parent in wanted:
                wanted.add(child)
        for number in wanted & set(self._branches):
            self._end_branch(self._branches[number], error)
        self._advance()

    def _end_branch(self, branch: _Branch, error: Exception) -> None:
        branch.error = branch.error or error
        for select in list(branch.undecided):
            del branch.undecided[select]
            self._sink(OpFailed(select, error))

    def fail_all(self, error: Exception) -> None:
        """Fail everything that is open, and what comes later."""
        for branch in self._branches.values():
            self._end_branch(branch, error)
        self._advance()

    def _sink(self, event: Event) -> None:
        if isinstance(event, OpDone):
            self._results[event.op] = event.text
        elif isinstance(event, OpFailed):
            self._results[event.op] = event.error
        self._to_language(event)

    def _is_blocked(self, op: Op, blocked: set[int]) -> bool:
        """True when `op` waits behind an op of its branch, of a branch that it joins, or for the one that it refers to."""
        return (
            op.branch in blocked
            or (isinstance(op, JoinOp) and bool(blocked.intersection(op.children)))
            or (isinstance(op, RefOp) and op.target not in self._results)
        )

    def _takes_time(self, op: Op) -> bool:
        """True when `op` has to wait for its latency, which begins now."""
        latency_s = self._backend.latency_s
        if latency_s == 0 or not isinstance(op, GenOp | SelectOp) or self._branches[op.branch].error is not None:
            return False
        if op.id in self._due:
            self._due.discard(op.id)
            return False
        self._delayed.add(op.branch)

        def end() -> None:
            self._delayed.discard(op.branch)
            self._due.add(op.id)
            self._advance()

        shared_clock.set(latency_s, lambda: self._backend.do(end, is_needed=False))
        return True

    def _take(self, ops: list[Op]) -> None:
        self._waiting.extend(ops)
        self._advance()

    def _advance(self) -> None:
        """Execute, in order, every op that waits neither for a decision nor behind an op that does."""
        blocked = {number for number, branch in self._branches.items() if branch.undecided} | self._delayed
        ops, self._waiting = self._waiting, []
        for op in ops:
            if isinstance(op, DecideOp):
                self._decide(op)
                if not self._branches[op.branch].undecided:
                    blocked.discard(op.branch)
                continue
            if self._is_blocked(op, blocked) or self._takes_time(op):
                blocked.add(op.branch)
                blocked.update(op.children if isinstance(op, ForkOp) else ())
                self._waiting.append(op)
                continue
            self._execute(op)
            if self._branches[op.branch].undecided:
                blocked.add(op.branch)
        if any(isinstance(op, DecideOp) for op in ops) and self._waiting:
            self._advance()  # ops from before the decision may go on now
        self._forget_if_done()

    def _execute(self, op: Op) -> None:
        branch = self._branches[op.branch]
        if isinstance(op, ForkOp):  # children of a failed branch exist, and fail with its error
            for child in op.children:
                self._branches[child] = _Branch(branch.text, len(branch.text), branch.error, branch.role)
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

    def _perform(self, op: Op, branch: _Branch) -> OpDone | None:
        """Do one op; None: its end comes later.

        Raises:
            Exception: why it fails.
        """
        match op:
            case TextOp(text=text):
                return OpDone(op.id, text)
            case RoleBeginOp(role=role):
                branch.role = role
                return OpDone(op.id, _role_text(self._backend.chat_template, role)[0])
            case RoleEndOp():
                return OpDone(op.id, _role_text(self._backend.chat_template, branch.role or "")[1])
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
            case JoinOp(children=children, mode="concat"):
                joined = [self._branches[child] for child in children]
                for child in joined:
                    if child.error is not None:
                        raise child.error
                return OpDone(op.id, "".join(child.text[child.forked_at :] for child in joined))
            case _:
                return OpDone(op.id)

    def _generate(self, op: GenOp, branch: _Branch) -> OpDone:
        reply = self._backend.answer(op, branch.text)
        call = self._backend.calls[-1]
        raw = [reply] * op.params.n if isinstance(reply, str) else reply
        if isinstance(raw, Exception) or len(raw) != op.params.n:
            raise ScriptError(f"{describe(call)}: got {reply!r}, expected a text or a list of {op.params.n} texts")
        fitted = [fit(text, op.params, call) for text in raw]
        if op.stream:
            for piece in words(fitted[0].text):
                self._sink(OpDelta(op.id, piece))
        values = [one.text for one in fitted]
        return OpDone(op.id, values[0], values if op.params.n > 1 else values[0], meta=_gen_meta(op, branch, fitted))

    def _select(self, op: SelectOp, branch: _Branch) -> OpDone | None:
        reply = self._backend.answer(op, branch.text)
        if reply not in op.choices:
            call = self._backend.calls[-1]
            raise ScriptError(f"{describe(call)}: the reply {reply!r} is none of the choices {list(op.choices)}")
        meta = _scores(op.choices, op.choices.index(str(reply)))
        if op.method == "client":
            branch.undecided[op.id] = op
            if op.needs_unconditional:
                meta["unconditional_token_logprobs"] = [[[None, 0, choice]] for choice in op.choices]
            self._sink(OpScored(op.id, meta))
            return None
        return OpDone(op.id, str(reply), str(reply), meta=meta | _counts(op.id, branch.text, 1))

    def _decide(self, op: DecideOp) -> None:
        branch = self._branches[op.branch]
        select = branch.undecided.pop(op.select, None)
        if select is None:
            self._sink(OpFailed(op.id, CancelledError(f"deciding select {op.select}: it is not open any more")))
            return
        choice = select.choices[op.index]
        self._sink(OpDone(op.id))
        meta = _scores(select.choices, op.index) | _counts(select.id, branch.text, 1)
        branch.text += choice
        self._sink(OpDone(select.id, choice, choice, meta=meta))


def _counts(number: int, prompt: str, completed: int) -> dict[str, Any]:
    return {
        "id": f"scripted-{number}",
        "prompt_tokens": len(words(prompt)),
        "completion_tokens": completed,
        "cached_tokens": 0,
        "forced_tokens": 0,
    }


def _gen_meta(op: GenOp, branch: _Branch, fitted: Sequence[Fitted]) -> dict[str, Any]:
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
