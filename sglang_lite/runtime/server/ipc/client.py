"""The engine as the HTTP process sees it: requests, programs and calls under way in the scheduler process."""

from __future__ import annotations

import itertools
import logging
import queue
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_lite.errors import EngineStoppedError, ProgramError, RequestError, SglangLiteError, UnsupportedError
from sglang_lite.op_json import error_from_json, event_from_json, op_to_json
from sglang_lite.request_tree import EventSink, Finding, Op, OpDone, OpFailed, RequestTree, TreeRow
from sglang_lite.runtime.engine.async_calls import replies_of
from sglang_lite.runtime.engine.reply import Mailbox, Reply
from sglang_lite.runtime.engine.requests import GenerateRequest, Limits, Params, build_requests, logprob_params
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.text.tokenizer import Tokenizer

logger = logging.getLogger("sglang_lite.server")

Deliver = Callable[[Reply, SglangLiteError | None, bool], None]


@dataclass
class _Growing:
    """One request's reply, put together again from its pieces."""

    deliver: Deliver
    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    lists: dict[str, list[Any]] = field(default_factory=dict[str, "list[Any]"])
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    is_over: bool = False

    def take(self, piece: ipc.Piece) -> None:
        self.text += piece.text
        self.ids += piece.ids
        for name, entries in piece.grown.items():
            self.lists.setdefault(name, []).extend(entries)
        self.meta = piece.meta | {name: list(entries) for name, entries in self.lists.items()}
        error = None if piece.error is None else error_from_json(piece.error)
        self.deliver({"text": self.text, "output_ids": list(self.ids), "meta_info": self.meta}, error, piece.last)

    def fail(self, error: SglangLiteError, rid: str) -> None:
        self.is_over = True
        finish = {"type": "abort", "message": str(error)}
        meta = {"id": rid, "prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0} | self.meta
        reply = {"text": self.text, "output_ids": list(self.ids), "meta_info": meta | {"finish_reason": finish}}
        self.deliver(reply, error, True)


@dataclass
class _Group:
    """Requests that were sent together."""

    rids: list[str]
    requests: list[_Growing]


class RemoteProgram:
    """A program in the scheduler process (see `request_tree.Program`). `row_ops`: of a row of a tree, which is whole."""

    def __init__(
        self, client: EngineClient, number: int, sink: EventSink, row_ops: Sequence[int] | None = None
    ) -> None:
        self._client = client
        self._number = number
        self._sink = sink
        self._lock = threading.Lock()
        self._open: dict[int, None] = dict.fromkeys(row_ops or ())
        self._is_row = row_ops is not None
        self._is_closed = self._is_row
        self._death: EngineStoppedError | None = None

    @property
    def is_over(self) -> bool:
        """Closed, and every op has ended."""
        return self._is_closed and not self._open

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; never waits. With the scheduler gone they fail at once.

        Raises:
            ProgramError: the program is a row of a tree.
        """
        if self._is_row and ops:
            raise ProgramError(f"appending op {ops[0].id} to a row of a tree: the tree is whole")
        with self._lock:
            death = self._death
            if death is None:
                self._open.update(dict.fromkeys(op.id for op in ops))
        if death is not None:
            for op in ops:
                self._sink(OpFailed(op.id, death))
            return
        self._client.send(ipc.AppendOps(self._number, [op_to_json(op) for op in ops]))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop these branches and their descendants (None: all)."""
        if not self.is_over:
            self._client.send(ipc.CancelProgram(self._number, None if branches is None else list(branches)))

    def close(self) -> None:
        """No further ops come."""
        if not self._is_closed:
            self._is_closed = True
            self._client.send(ipc.CloseProgram(self._number))
            self._client.forget_program(self._number)

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Events of the scheduler process, on the reading thread."""
        for data in events:
            event = event_from_json(data)
            if isinstance(event, OpDone | OpFailed):
                with self._lock:
                    self._open.pop(event.op, None)
            self._sink(event)
        self._client.forget_program(self._number)

    def fail(self, error: EngineStoppedError) -> None:
        """The scheduler process is gone."""
        with self._lock:
            self._death = error
            ops, self._open = list(self._open), {}
        for op in ops:
            self._sink(OpFailed(op, error))


class EngineClient:
    """Sends work to one scheduler process and hands out what comes back; see `EnginePort`.

    `take` runs on the reading thread, everything else on any. After `die` all that was open has failed with
    `EngineStoppedError`, and everything new does.
    """

    def __init__(self, send: Callable[[ipc.Message], None], ready: ipc.Ready, tokenizer: Tokenizer) -> None:
        tokenizer.cover(ready.vocab_size)
        self.tokenizer = tokenizer
        self.limits = Limits(ready.vocab_size, ready.context_length, ready.pool_tokens)
        self._send = send
        self._snapshot: dict[str, Any] = ready.info
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._groups: dict[int, _Group] = {}
        self._rids: set[str] = set()
        self._programs: dict[int, RemoteProgram] = {}
        self._calls: dict[int, queue.SimpleQueue[ipc.Answer | EngineStoppedError]] = {}
        self._death: EngineStoppedError | None = None

    def send(self, message: ipc.Message) -> None:
        """Send, unless the scheduler is gone."""
        if self._death is None:
            self._send(message)

    def async_generate(  # noqa: PLR0913 - the arguments of `Engine.async_generate`
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Params | Sequence[Params] = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        token_ids_logprob: Sequence[int] | None = None,
        return_text_in_logprobs: bool = False,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
        priority: int | None = None,
        cache_salt: str | None = None,
        **other_inputs: Any,
    ) -> Awaitable[Reply | list[Reply] | AsyncIterator[Reply]]:
        """As `Engine.async_generate`; prompts are tokenised here."""
        if given := [name for name, value in other_inputs.items() if value not in (None, False)]:
            raise UnsupportedError(f"generating: the input {given[0]} is not supported; give prompt or input_ids")
        logprob = logprob_params(
            return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs
        )
        requests, is_single = build_requests(
            self.tokenizer, self.limits, prompt, input_ids, sampling_params, logprob, rid, priority, cache_salt
        )
        return replies_of(self, requests, is_single, stream=stream)

    def submit(self, requests: Sequence[GenerateRequest], mailbox: Mailbox, *, stream: bool) -> list[str]:
        """Send requests; their replies go to the mailbox. Returns their ids.

        Raises:
            RequestError: an id is in use or comes twice.
            EngineStoppedError: there is no scheduler.
        """
        named = [r if r.rid is not None else replace(r, rid=f"g{secrets.token_hex(8)}") for r in requests]
        rids = [str(request.rid) for request in named]
        growing = [_Growing(mailbox.deliverer(index)) for index in range(len(named))]
        with self._lock:
            self._check_alive()
            if len(set(rids)) < len(rids):
                raise RequestError(f"generating: rid {rids!r:.200} has an id twice, expected one for each request")
            if taken := sorted(self._rids & set(rids)):
                raise RequestError(f"generating: rid {taken!r:.200} is in use, expected ids of no running request")
            number = next(self._numbers)
            self._groups[number] = _Group(rids, growing)
            self._rids.update(rids)
        self._send(ipc.Generate(number, named, stream))
        return rids

    def abort(self, rid: str) -> None:
        """End a request wherever it is; its reply is what it had so far."""
        self.send(ipc.Abort([rid], is_silent=False))

    def abort_all(self, rids: Sequence[str]) -> None:
        """End requests that nobody waits for."""
        self.send(ipc.Abort(list(rids), is_silent=True))

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> RemoteProgram:
        """Start a program whose events go to `sink`, on the reading thread."""
        with self._lock:
            self._check_alive()
            number = next(self._numbers)
            program = self._programs[number] = RemoteProgram(self, number, sink)
        self._send(ipc.OpenProgram(number, seed, cache_salt))
        return program

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> list[RemoteProgram]:
        """Start a program for each row of arguments of `tree`, by one message (see `request_tree.RowsBackend`)."""
        with self._lock:
            self._check_alive()
            programs = {next(self._numbers): row for row in rows}
            opened = {number: RemoteProgram(self, number, row.sink, list(tree.ops)) for number, row in programs.items()}
            if tree.ops:
                self._programs.update(opened)
        arguments = [dict(row.arguments) for row in rows]
        seeds = [row.seed for row in rows]
        self._send(ipc.OpenRows(list(programs), tree.to_json(), arguments, seeds, cache_salt))
        return list(opened.values())

    def check(self, tree: RequestTree) -> list[Finding]:
        """What is wrong with a tree before it runs (see `request_tree.TreeChecker`)."""
        return [Finding(**finding) for finding in self.call("check", tree=tree.to_json())]

    def forget_program(self, number: int) -> None:
        """Let go of a program that is over."""
        with self._lock:
            program = self._programs.get(number)
            is_over = program is not None and program.is_over
            if is_over:
                del self._programs[number]
        if is_over:
            self.send(ipc.ForgetProgram(number))

    def call(self, name: str, **arguments: Any) -> Any:
        """Call a function of the engine by name and wait for its result.

        Raises:
            EngineStoppedError: there is no scheduler.
            SglangLiteError: what the function raised.
        """
        answers: queue.SimpleQueue[ipc.Answer | EngineStoppedError] = queue.SimpleQueue()
        with self._lock:
            self._check_alive()
            number = next(self._numbers)
            self._calls[number] = answers
        self._send(ipc.Call(number, name, arguments))
        answer = answers.get()
        if isinstance(answer, EngineStoppedError):
            raise answer
        if answer.error is not None:
            raise error_from_json(answer.error)
        return answer.value

    def flush_cache(self) -> bool:
        """Forget all prefixes; False while requests run."""
        return bool(self.call("flush_cache"))

    def get_server_info(self) -> dict[str, Any]:
        """Configuration and counters."""
        return dict(self.call("get_server_info"))

    def check_running(self) -> None:
        """Raise `EngineStoppedError` where the scheduler is gone."""
        self._check_alive()

    def snapshot(self) -> dict[str, Any]:
        """Counters of a moment ago, from the last beat; waits for nothing."""
        return self._snapshot

    def take(self, message: ipc.FromScheduler) -> None:
        """One message of the scheduler, on the reading thread."""
        match message:
            case ipc.Piece():
                self._take_piece(message)
            case ipc.ProgramEvents(program=number, events=events):
                with self._lock:
                    program = self._programs.get(number)
                if program is not None:
                    program.take(events)
            case ipc.Beat(snapshot=snapshot):
                self._snapshot = snapshot or self._snapshot
            case ipc.Answer(number=number):
                with self._lock:
                    answers = self._calls.pop(number, None)
                if answers is not None:
                    answers.put(message)
            case _:
                raise AssertionError(f"{type(message).__name__} is not for the client")

    def die(self, error: EngineStoppedError) -> None:
        """The scheduler is gone: everything open fails with `error`, and everything new."""
        with self._lock:
            self._death = error
            groups, self._groups = list(self._groups.values()), {}
            programs, self._programs = list(self._programs.values()), {}
            calls, self._calls = list(self._calls.values()), {}
            self._rids.clear()
        for group in groups:
            for rid, request in zip(group.rids, group.requests, strict=True):
                if not request.is_over:
                    request.fail(error, rid)
        for program in programs:
            program.fail(error)
        for answers in calls:
            answers.put(error)

    @property
    def num_open(self) -> int:
        """Groups, programs and calls under way."""
        with self._lock:
            return len(self._groups) + len(self._programs) + len(self._calls)

    def _take_piece(self, piece: ipc.Piece) -> None:
        with self._lock:
            group = self._groups.get(piece.group)
            if group is None:
                return
            request = group.requests[piece.index]
            if piece.last:  # before its reader hears of it, who may use the id again at once
                request.is_over = True
                self._rids.discard(group.rids[piece.index])
                if all(one.is_over for one in group.requests):
                    self._groups.pop(piece.group)
        try:
            request.take(piece)
        except Exception:
            logger.exception("a reader of request %s failed; other requests go on", group.rids[piece.index])

    def _check_alive(self) -> None:
        if self._death is not None:
            raise EngineStoppedError(str(self._death))
