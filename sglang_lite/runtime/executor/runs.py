"""The requests of one program's gens and selects: starts them, hands their outputs on, answers those that wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from sglang_lite.errors import CancelledError, ExecutionError, SglangLiteError
from sglang_lite.request_tree import (
    AcceptOp,
    AnswerOp,
    DecideOp,
    Event,
    GenOp,
    LogprobParams,
    OpDone,
    OpFailed,
    RefuseOp,
    RetryOp,
    SamplingParams,
    SelectOp,
)
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.gen import GenRun
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.leases import BranchLeases
from sglang_lite.runtime.executor.ports import RequestPort, TextParts
from sglang_lite.runtime.executor.select import SelectRun
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, ReqOutput, Usage


class RunOwner(Protocol):
    """What runs tell the program that they belong to."""

    def emit(self, event: Event) -> None:
        """Report an event."""
        ...

    def settle(self, branch: Branch, done: OpDone) -> None:
        """The op that runs on `branch` is done."""
        ...

    def fail(self, branch: Branch, error: Exception) -> None:
        """The op that runs on `branch` has failed, and the branch with it."""
        ...


class Runs:
    """At most one running gen or select a branch, from its requests to its value."""

    def __init__(
        self, owner: RunOwner, seed: int, number: int, port: RequestPort, text: TextParts, leases: BranchLeases
    ) -> None:
        self._owner = owner
        self._seed = seed
        self._number = number
        self._port = port
        self._text = text
        self._leases = leases
        self._runs: dict[int, GenRun | SelectRun] = {}
        """By branch id."""

    def start(self, branch: Branch, op: GenOp | SelectOp) -> None:
        """Start the requests of `op`; the branch waits for it."""
        if isinstance(op, GenOp):
            self._launch(branch, op, lambda submit: GenRun(op, branch, self._seed, self._text, submit))
        else:
            self._launch(branch, op, lambda submit: SelectRun(op, branch, self._text, submit))

    def abort(self, branch: Branch) -> None:
        """End what runs on `branch`; late outputs have no reader."""
        if (run := self._runs.pop(branch.id, None)) is not None:
            for generation in run.generations:
                if generation.finished is None:
                    self._port.send(AbortReq(generation.rid))

    def answer(self, op: AnswerOp, branch: Branch) -> None:
        """Take the program's word on the select or gen that waits for it; one that does not wait makes the answer fail."""
        run = self._runs.get(branch.id)
        target = op.select if isinstance(op, DecideOp) else op.gen
        if run is None or run.op.id != target or not run.is_complete:
            self._owner.emit(
                OpFailed(op.id, branch.failed or CancelledError(f"op {target} does not wait for an answer"))
            )
            return
        self._owner.emit(OpDone(op.id))
        match run, op:
            case SelectRun(), DecideOp(index=index):
                self._finish(branch, run.finish(branch, index))
            case GenRun(), AcceptOp():
                self._finish(branch, run.finish(branch))
            case GenRun(), RetryOp():
                run.reject(branch, op)
                try:
                    self._launch(branch, run.op, lambda submit: run.again(branch, op.params, submit))
                except SglangLiteError as error:  # no room for another attempt
                    self._owner.fail(branch, error)
            case GenRun(), RefuseOp(message=message):
                self._owner.fail(branch, ExecutionError(message))
            case _:
                raise AssertionError(f"{type(op).__name__} is no answer to a {type(run.op).__name__}")

    def _launch(self, branch: Branch, op: GenOp | SelectOp, make: Callable[[_Submitter], GenRun | SelectRun]) -> None:
        submitter = _Submitter(branch, (self._number, *branch.path), self._port, self._text, self._leases)
        run = make(submitter)
        branch.running = op
        branch.has_run = branch.has_own_run = True
        self._runs[branch.id] = run
        for req, generation in submitter.started:
            self._port.submit(req, self._receiver(branch, run, generation))

    def _receiver(self, branch: Branch, run: GenRun | SelectRun, generation: Generation) -> Callable[[ReqOutput], None]:
        streams = run.streams(generation)

        def on_output(out: ReqOutput) -> None:
            if out.finished is None and not streams:
                generation.hold(out)
                return
            if self._runs.get(branch.id) is not run or generation not in run.generations:
                return  # the op was cancelled or failed; late outputs have no reader
            if out.usage is not None and branch.prefilled_tokens:
                out = out._replace(usage=_with_prefill(out.usage, branch.prefilled_tokens))
                branch.prefilled_tokens = 0
            if (delta := run.take(generation, out)) is not None:
                self._owner.emit(delta)
            if out.finished is None:
                return
            if out.finished.kind == "abort":
                self._owner.fail(branch, out.finished.error or CancelledError(f"request {out.rid} was aborted"))
            elif run.is_complete:
                self._complete(branch, run)

        return on_output

    def _complete(self, branch: Branch, run: GenRun | SelectRun) -> None:
        if isinstance(run, SelectRun) and run.op.method == "client":
            self._owner.emit(run.scored())
        elif isinstance(run, GenRun) and run.op.hold:
            self._owner.emit(run.held())
        else:
            self._finish(branch, run.finish(branch))

    def _finish(self, branch: Branch, done: OpDone) -> None:
        first = self._runs.pop(branch.id).generations[0]
        known_len = first.finished.usage.known_len if first.finished is not None else 0
        branch.computed_len = min(len(branch.ids), max(known_len, branch.computed_len))
        branch.running = None
        self._owner.settle(branch, done)


class _Submitter:
    """Makes the requests of one op; they start together, once all of them are made."""

    def __init__(
        self, branch: Branch, place: tuple[int, ...], port: RequestPort, text: TextParts, leases: BranchLeases
    ) -> None:
        self.started: list[tuple[AddReq, Generation]] = []
        self._branch = branch
        self._place = place
        self._port = port
        self._text = text
        self._lease, self._next_use = leases.needed(branch)

    def __call__(
        self,
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
            is_continuing=self._branch.has_run,
            lease=self._lease,
            next_use=self._next_use,
            place=self._place,
        )
        generation = Generation(req.rid, len(ids), self._text.visible_bytes)
        self.started.append((req, generation))
        return generation


def _with_prefill(usage: Usage, num_tokens: int) -> Usage:
    """The usage of the first of some siblings, with what was computed for all of them before."""
    return replace(
        usage,
        computed_tokens=usage.computed_tokens + num_tokens,
        cached_tokens=max(usage.cached_tokens - num_tokens, 0),
    )
