"""A client in the manner of SGLang's interpreter, as a backend over an engine: one request a gen, the whole text each time.

Branches keep text, not tokens; a fork copies it; `select` sends the prompt once, then the prompt with every choice. It knows
nothing of what a program will want next.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sglang_lite.choice_scoring import mean
from sglang_lite.request_tree import (
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    OpDone,
    OpFailed,
    RefOp,
    SelectOp,
    TextOp,
)


class WholeTextClient:
    """Programs over `engine.generate`. `requests`, `chars_sent`: since the last `reset`."""

    def __init__(self, engine: Any, num_threads: int = 64) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(num_threads)
        self._lock = threading.Lock()
        self.requests = 0
        self.chars_sent = 0

    def reset(self) -> None:
        """Count from zero."""
        self.requests = self.chars_sent = 0

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> _Program:
        """Start a program."""
        return _Program(self, sink)

    def start(self, job: Any, *args: Any) -> None:
        """Run a job on a thread of the client."""
        self._threads.submit(job, *args)

    def generate(self, prompts: list[str], params: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
        """One request for each prompt."""
        with self._lock:
            self.requests += len(prompts)
            self.chars_sent += sum(map(len, prompts))
        replies: list[dict[str, Any]] = self._engine.generate(prompts, params, **fields)
        return replies

    def choose(self, text: str, choices: tuple[str, ...]) -> str:
        """SGLang's way: compute the prompt, then score every choice after it by its log-probabilities."""
        nothing = {"max_new_tokens": 0, "temperature": 0.0}
        (first,) = self.generate([text], nothing)
        start = max(first["meta_info"]["prompt_tokens"] - 2, 0)
        texts = [text + choice for choice in choices]
        replies = self.generate(texts, nothing, return_logprob=True, logprob_start_len=start)
        scores = [
            mean([entry[0] for entry in reply["meta_info"]["input_token_logprobs"] if entry[0] is not None])
            for reply in replies
        ]
        return choices[scores.index(max(scores))]

    def flush_cache(self) -> bool:
        """Of the engine."""
        return bool(self._engine.flush_cache())

    def get_server_info(self) -> dict[str, Any]:
        """Of the engine."""
        return dict(self._engine.get_server_info())

    def shutdown(self) -> None:
        """End the threads; the engine goes on."""
        self._threads.shutdown()


class _Branch:
    def __init__(self, text: str = "") -> None:
        self.text = text
        self.forked_at = len(text)
        self.queue: deque[Op] = deque()
        self.is_running = False


class _Program:
    """One program: a branch runs its ops in order, on a thread while it runs some."""

    def __init__(self, client: WholeTextClient, sink: EventSink) -> None:
        self._client = client
        self._sink = sink
        self._lock = threading.Lock()
        self._branches: dict[int, _Branch] = {0: _Branch()}
        self._born = {0}
        self._texts: dict[int, str] = {}

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops."""
        with self._lock:
            for op in ops:
                self._branches.setdefault(op.branch, _Branch()).queue.append(op)
        self._start_ready()

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Nothing: such a client never takes a request back."""

    def close(self) -> None:
        """Nothing."""

    def _start_ready(self) -> None:
        with self._lock:
            ready = [branch for branch in self._branches.values() if self._is_ready(branch)]
            for branch in ready:
                branch.is_running = True
        for branch in ready:
            self._client.start(self._run, branch)

    def _is_ready(self, branch: _Branch) -> bool:
        if branch.is_running or not branch.queue:
            return False
        op = branch.queue[0]
        return op.branch in self._born and (not isinstance(op, RefOp) or op.target in self._texts)

    def _run(self, branch: _Branch) -> None:
        while True:
            with self._lock:
                branch.is_running = False
                if not self._is_ready(branch):
                    break
                branch.is_running = True
                op = branch.queue.popleft()
            try:
                self._emit(self._perform(op, branch))
            except Exception as error:  # noqa: BLE001 - the op's error, whatever it is
                self._emit(OpFailed(op.id, error))
            self._start_ready()

    def _emit(self, event: Event) -> None:
        if isinstance(event, OpDone):
            with self._lock:
                self._texts[event.op] = event.text
        self._sink(event)

    def _perform(self, op: Op, branch: _Branch) -> OpDone:
        match op:
            case TextOp(text=text):
                done = OpDone(op.id, text)
            case RefOp(target=target):
                done = OpDone(op.id, self._texts[target])
            case GenOp(params=params):
                wanted = {
                    "max_new_tokens": params.max_new_tokens,
                    "temperature": params.temperature,
                    "ignore_eos": params.ignore_eos,
                }
                (reply,) = self._client.generate([branch.text], wanted)
                done = OpDone(op.id, reply["text"], reply["text"])
            case SelectOp(choices=choices):
                best = self._client.choose(branch.text, choices)
                done = OpDone(op.id, best, best)
            case ForkOp(children=children):
                with self._lock:
                    for child in children:
                        known = self._branches.setdefault(child, _Branch())
                        known.text, known.forked_at = branch.text, len(branch.text)
                        self._born.add(child)
                done = OpDone(op.id)
            case JoinOp():
                done = OpDone(op.id)
            case _:
                raise AssertionError(f"the workloads have no {type(op).__name__}")
        branch.text += done.text
        return done
