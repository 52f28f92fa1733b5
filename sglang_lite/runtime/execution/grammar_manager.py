"""Compiles the constraints of requests beside the engine's loop, once each; knows no request and no step.

The grammar package (and the compiled kernels it needs) is imported by the first compilation, on a worker thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sglang_lite.errors import EngineStoppedError, GrammarError, RequestError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.scheduler.messages import GrammarCursor

if TYPE_CHECKING:
    from sglang_lite.grammar import TokenVocab

MAX_CACHED = 256
"""Compiled grammars kept; each also keeps the tables that its requests fill."""

Key: TypeAlias = tuple[str, str | tuple[str, ...]]
"""Kind of the source (`regex`, `choices`, `json_schema`, `ebnf`) and the source."""


class Compiler(Protocol):
    """What turns sources into compiled grammars (`sglang_lite.grammar.GrammarCompiler` fits)."""

    def compile_regex(self, pattern: str) -> Any:
        """The grammar of all strings that `pattern` matches as a whole."""
        ...

    def compile_choices(self, choices: Sequence[str]) -> Any:
        """The grammar of exactly these strings."""
        ...

    def compile_json_schema(self, schema: str) -> Any:
        """The grammar of the JSON texts that are valid under a schema, given as JSON text."""
        ...

    def compile_ebnf(self, text: str) -> Any:
        """The grammar of a GBNF text."""
        ...


Toolchain: TypeAlias = tuple[Compiler, Callable[[Any], GrammarCursor]]
"""A compiler, and what makes a new matcher of one of its compiled grammars."""


class GrammarManager:
    """Compiles on `max_workers` daemon threads and hands out a fresh matcher for each request.

    Equal sources are compiled once: whoever comes while a compilation runs waits for it, and whoever comes later gets a
    matcher at once. A `GrammarError` is kept like a grammar. The `max_cached` most recently used sources stay. Any thread may
    call any method.
    """

    def __init__(
        self,
        vocab: TokenVocab | Callable[[], TokenVocab],
        max_workers: int = 1,
        *,
        max_cached: int = MAX_CACHED,
        make_toolchain: Callable[[], Toolchain] | None = None,
    ) -> None:
        """`vocab`: or what makes it, called once by the first compilation. `make_toolchain` takes its place, and the
        grammar package's, for another compiler.
        """
        self._max_workers = max_workers
        self._max_cached = max_cached
        self._make_toolchain = make_toolchain or partial(_grammar_toolchain, vocab)
        self._toolchain: Toolchain | None = None
        self._toolchain_lock = threading.Lock()
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Key, Future[Any]] = OrderedDict()
        self._queue: SimpleQueue[tuple[Key, Future[Any]] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._is_stopped = False
        self._num_compilations = 0

    @property
    def num_compilations(self) -> int:
        """Compilations begun since the start."""
        return self._num_compilations

    def submit(self, params: SamplingParams) -> Future[GrammarCursor]:
        """A matcher at the start of the constraint in `params` (which has one), now or later.

        The future fails with `GrammarError` where the source cannot be compiled and with `EngineStoppedError` where
        `shutdown` came first. It may be cancelled.

        Raises:
            EngineStoppedError: after `shutdown`.

        """
        key = constraint_key(params)
        with self._lock:
            if self._is_stopped:
                raise EngineStoppedError("compiling a grammar: the engine is shut down; start a new one")
            compiled = self._compiled.get(key)
            if compiled is None:
                compiled = self._compiled[key] = Future()
                self._num_compilations += 1
                self._queue.put((key, compiled))
                self._start_worker()
                self._drop_oldest()
            self._compiled.move_to_end(key)
        answer: Future[GrammarCursor] = Future()
        compiled.add_done_callback(lambda done: self._hand_out(done, answer))
        return answer

    def shutdown(self) -> None:
        """Take nothing more; what is not being compiled yet fails with `EngineStoppedError`. Idempotent, never waits."""
        with self._lock:
            self._is_stopped = True
            futures = list(self._compiled.values())
            self._compiled.clear()
            for _ in self._workers:
                self._queue.put(None)
        for future in futures:
            future.cancel()

    def _start_worker(self) -> None:
        if len(self._workers) < self._max_workers:
            worker = threading.Thread(target=self._work, name=f"grammar-{len(self._workers)}", daemon=True)
            self._workers.append(worker)
            worker.start()

    def _drop_oldest(self) -> None:
        """Forget finished sources beyond the limit; one that is being compiled stays, so that nobody compiles it twice."""
        surplus = len(self._compiled) - self._max_cached
        for key in [key for key, future in self._compiled.items() if future.done()][: max(surplus, 0)]:
            del self._compiled[key]

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            key, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                compiled = self._compile(key)
            except GrammarError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - whoever waits on the future gets it; the thread must go on
                with self._lock:
                    self._compiled.pop(key, None)
                future.set_exception(error)
            else:
                future.set_result(compiled)

    def _compile(self, key: Key) -> Any:
        with self._toolchain_lock:
            if self._toolchain is None:
                self._toolchain = self._make_toolchain()
            compiler, _ = self._toolchain
        kind, _ = key
        try:
            return _compile_source(compiler, key)
        except ValueError as error:  # every error of the grammar package is one; it names the place
            raise GrammarError(f"compiling the {kind} of a request: {error}") from error

    def _hand_out(self, compiled: Future[Any], answer: Future[GrammarCursor]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        if compiled.cancelled():
            answer.set_exception(EngineStoppedError("compiling a grammar: the engine was shut down before its turn"))
        elif (error := compiled.exception()) is not None:
            answer.set_exception(error)
        else:
            assert self._toolchain is not None, "a compiled grammar without a compiler"
            _, make_matcher = self._toolchain
            answer.set_result(make_matcher(compiled.result()))


def constraint_key(params: SamplingParams) -> Key:
    """The constraint of `params`.

    Raises:
        RequestError: there is none.

    """
    for kind in ("regex", "choices", "json_schema", "ebnf"):
        source = getattr(params, kind)
        if source is not None:
            return kind, source
    raise RequestError("compiling a grammar: the request has no constraint; set regex, choices, json_schema or ebnf")


def _compile_source(compiler: Compiler, key: Key) -> Any:
    match key:
        case "choices", tuple(choices):
            return compiler.compile_choices(choices)
        case "json_schema", str(schema):
            return compiler.compile_json_schema(schema)
        case "ebnf", str(text):
            return compiler.compile_ebnf(text)
        case _, str(pattern):
            return compiler.compile_regex(pattern)
        case _:
            raise AssertionError(f"a constraint has a kind and a source, got {key!r}")


def _grammar_toolchain(vocab: TokenVocab | Callable[[], TokenVocab]) -> Toolchain:
    from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, compile_all  # numba: only when a grammar is used

    token_vocab = vocab() if callable(vocab) else vocab  # first: it may tell the user that compiling takes long
    compile_all()  # here, so that no mask makes the engine's loop wait for a kernel
    return GrammarCompiler(token_vocab), GrammarMatcher
