"""Run a program one scheduler step at a time on a fake model, and print what the scheduler and the memory hold.

The scheduler, the radix tree and the pages are the real ones; the model is a hash of the tokens, whose text has no
meaning, and tokens are bytes. A step starts when the program has sent nothing for a moment. Constraints (regex and the like) and
--backend are not for this command.

For each request: its place, its cursors (seq: known tokens; kv: computed/planned/allocated tokens; tree: tokens in the
locked part of the tree; sent: delivered tokens), end: how it is to end at its next commit, finished: how it ended. Then the
rows that ran, the queue, the pages and the tree (a node's first tokens, its locks, its leases). The ledger is checked after
every step.

Examples:
  sglang-lite step
  sglang-lite step quiz.py:ask --arg question="Why?" --steps 20 --page-size 4
"""

from __future__ import annotations

import argparse
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import sglang_lite as sgl
from sglang_lite.cli.options import parse_assignment
from sglang_lite.cli.target import check_arguments, find_function, load_module, split_target
from sglang_lite.errors import UnsupportedError
from sglang_lite.lang.sgl_function import SglFunction
from sglang_lite.request_tree import EventSink, Op, SamplingParams
from sglang_lite.runtime.execution.fake_runner import FakeRunner
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.loop import make_loop
from sglang_lite.runtime.scheduler.messages import AddReq, FinishReason, Message, ReqOutput, Usage
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.req import Req
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
from sglang_lite.runtime.text.vocabulary import VocabInfo, _byte_level_table

NAME = "step"
SUMMARY = "run a program one scheduler step at a time on a fake model"

_TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
_END = 256
_PAUSE_S = 0.05
"""A program that sends nothing for so long waits for a value."""
_CONTEXT = 1024


@sgl.function
def two_ideas(s: sgl.ProgramState, topic: str = "rain") -> None:
    """The program that runs where none is named: a shared prompt, two branches and a choice."""
    s += f"Two short thoughts about {topic}. "
    branches = s.fork(2)
    for number, branch in enumerate(branches):
        branch += f"Thought {number}:"
        branch += sgl.gen("thought", max_tokens=6, temperature=0)
    s += branches[0]["thought"] + branches[1]["thought"]
    s += " Better: " + sgl.select("better", ["the first", "the second"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite step`."""
    parser.add_argument(
        "target", nargs="?", metavar="FILE.py:NAME", help="the @function (default: a small built-in one)"
    )
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the @function")
    parser.add_argument("--steps", type=int, default=1000, help="stop after so many steps")
    parser.add_argument("--page-size", type=int, default=16, help="tokens in a page")
    parser.add_argument("--pages", type=int, default=64, help="pages in the pool")
    parser.add_argument("--policy", default="lpm", help="order of the waiting queue")
    parser.add_argument("--overlap", action="store_true", help="plan each step while the one before is in flight")


def main(args: argparse.Namespace) -> int:
    """Run the program and print every step."""
    function: SglFunction = two_ideas
    if args.target is not None:
        path, name = split_target(args.target)
        function = find_function(load_module(path), name, path)
    given = dict(parse_assignment(text) for text in args.arg)
    check_arguments(function, given)
    config = SchedulerConfig(
        context_length=min(_CONTEXT, args.page_size * args.pages),
        vocab_size=_END + 1,
        eos_ids=frozenset({_END}),
        max_running_requests=16,
        schedule_policy=args.policy,
        disable_overlap_schedule=not args.overlap,
    )
    given_up: list[BaseException] = []

    def run_body() -> None:
        (state,) = function.run_batch([given], backend=stepper)
        if (error := state.error()) is not None:
            given_up.append(error)

    stepper = Stepper(config, page_size=args.page_size, num_pages=args.pages + 1)
    body = threading.Thread(target=run_body, daemon=True)
    body.start()
    for number in range(1, args.steps + 1):
        if not stepper.wait_for_work(body):
            break
        print("\n".join([f"--- step {number}", *stepper.step()]))
    if given_up:
        raise given_up[0]
    return 0


class Stepper:
    """A backend whose steps are made one by one by its owner; programs reach it from their own threads."""

    def __init__(self, config: SchedulerConfig, *, page_size: int, num_pages: int) -> None:
        self._text = byte_text()
        self._kv = KvManager(num_rows=32, num_pages=num_pages, page_size=page_size, max_len=config.context_length)
        self._scheduler = Scheduler(config, self._kv, self._text.visible_bytes)
        self._fake = FakeRunner(num_pages, page_size, config.vocab_size)
        self._loop = make_loop(self._scheduler, self)
        self._executor = TreeExecutor(self, self._text)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._messages: list[Message] = []
        self._handlers: dict[str, Callable[[ReqOutput], None]] = {}
        self._names, self._rids = itertools.count(), itertools.count()
        self._rows: list[str] = []

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> SteppedProgram:
        """Start a program."""
        name = f"p{next(self._names)}"
        self._commands.put(lambda: self._executor.open(name, sink, seed or 0))
        return SteppedProgram(name, self._executor, self._commands.put)

    def flush_cache(self) -> bool:
        """Forget what is cached; False while something is held."""
        return self._scheduler.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """The scheduler's counters."""
        return self._scheduler.statistics().to_dict()

    def shutdown(self) -> None:
        """Nothing to end: the steps are the owner's."""

    def submit(self, req: AddReq, on_output: Callable[[ReqOutput], None]) -> None:
        """Queue a request."""
        params = req.sampling
        if any(value is not None for value in (params.regex, params.choices, params.json_schema, params.ebnf)):
            error = UnsupportedError(f"stepping request {req.rid}: constraints are not stepped; use sglang-lite run")
            usage = Usage(len(req.input_ids), 0, 0, 0)
            on_output(ReqOutput(req.rid, finished=FinishReason("abort", error=error), usage=usage))
            return
        self._handlers[req.rid] = on_output
        self._messages.append(req)

    def send(self, message: Message) -> None:
        """Queue any other message."""
        self._messages.append(message)

    def prepare_grammar(self, params: SamplingParams) -> None:
        """Nothing: constraints are not stepped."""

    def new_rid(self) -> str:
        """A request id."""
        return f"r{next(self._rids)}"

    def run(self, plan: Plan) -> StepResult:
        """Run a plan on the fake model, and note its rows."""
        self._rows = [f"{row.rid}[{row.prefix_len}:{row.seq_len}]" for row in plan.rows]
        return self._fake.run(plan)

    def wait_for_work(self, body: threading.Thread) -> bool:
        """Take what the program sends until it pauses; False: it has ended and nothing is left to do."""
        while True:
            try:
                while True:
                    self._commands.get(timeout=_PAUSE_S)()
            except queue.Empty:
                if self._scheduler.has_work or self._messages:
                    return True
                if not body.is_alive() and self._commands.empty():
                    return False

    def step(self) -> list[str]:
        """One step of the loop; returns the lines that say how things stand after it."""
        before = [req for _, req in self._scheduler.places()]
        messages, self._messages, self._rows = self._messages, [], []
        new = [m.rid for m in messages if isinstance(m, AddReq)]
        for output in self._loop.step(messages):
            handler = self._handlers.pop(output.rid) if output.finished else self._handlers[output.rid]
            handler(output)
        self._executor.sweep()
        self._scheduler.check_invariants()
        ended = [_describe("ended", req) for req in before if req.finished_reason is not None]
        return [
            *([f"new: {' '.join(new)}"] if new else []),
            f"ran: {' '.join(self._rows) or 'nothing'}",
            *ended,
            *self.describe(),
        ]

    def describe(self) -> list[str]:
        """Requests, queue, pages, tree and ledger as lines."""
        places, kv = self._scheduler.places(), self._kv.statistics()
        waiting = [req.rid for place, req in places if place.startswith("waiting")]
        lines = [_describe(place, req) for place, req in places]
        lines.append(f"queue: {' '.join(waiting) or 'empty'}")
        lines.append(
            f"pages: {kv.free_pages} free, {kv.private_pages} private, {kv.protected_pages} locked, {kv.evictable_pages} "
            f"evictable of {kv.total_pages}; rows: {kv.total_rows - kv.free_rows} of {kv.total_rows}"
        )
        for depth, node in self._kv.tree_nodes():
            if depth:
                text = bytes(node.key[3:160:4]).decode("utf-8", "replace")
                leases = ",".join(sorted(lease.name for lease in node.leases))
                lines.append(
                    f"tree: {'  ' * depth}{text!r} pages {node.pages.tolist()} locks {node.lock_ref} leases {leases or '-'}"
                )
        lines.append("ledger: every page and row has one owner")
        return lines


class SteppedProgram:
    """A program's handle (see `request_tree.Program`)."""

    def __init__(self, name: str, executor: TreeExecutor, post: Callable[[Callable[[], None]], None]) -> None:
        self._name = name
        self._executor = executor
        self._post = post

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops."""
        given = tuple(ops)
        self._post(lambda: self._executor.append(self._name, given))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop these branches (None: all)."""
        self._post(lambda: self._executor.cancel(self._name, branches))

    def close(self) -> None:
        """No further ops come."""
        self._post(lambda: self._executor.close(self._name))


def byte_text() -> TextParts:
    """A tokenizer whose ids 0 to 255 are the bytes; 256 ends a text."""
    alphabet = {chr(code): ord(byte) for code, byte in _byte_level_table().items()}
    backend = tokenizers.Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    info = VocabInfo("byte_level", bos_id=None, eos_id=_END, pad_id=None, eos_ids=(_END,), add_bos=False)
    tokenizer = Tokenizer(backend, info)
    return TextParts(tokenizer, ChatTemplate(_TEMPLATE, tokenizer.template_variables), tokenizer.visible_bytes)


def _describe(place: str, req: Req) -> str:
    return " ".join(_parts(place, req))


def _parts(place: str, req: Req) -> Iterator[str]:
    yield f"{req.rid}: {place}, seq {req.seq_len} (prompt {req.prompt_len})"
    hold = req.hold
    if hold is not None:
        locks: Any = hold.lock.node.lock_ref if hold.lock is not None else "-"
        yield f"kv {hold.committed_len}/{req.planned_len}/{hold.allocated_len} tree {hold.tree_len} locks {locks} row {hold.row}"
    yield f"sent {req.sent_tokens}"
    for name, reason in (("end", req.end_reason), ("finished", req.finished_reason)):
        if reason is not None:
            yield f"{name} {reason.to_json()}"
