"""`Runtime`: a server in a process of its own behind the methods of SGLang's handle; it knows the pipes and the routes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sglang_lite import env
from sglang_lite.errors import EngineStoppedError, RequestError, UnsupportedError
from sglang_lite.lang.backends.http_client import HEADERS_ID, HttpClient, RefusedError, shared_loop
from sglang_lite.lang.backends.remote import RuntimeEndpoint, error_of
from sglang_lite.op_json import error_from_json
from sglang_lite.sampling_params import SamplingParams

if TYPE_CHECKING:
    from sglang_lite.runtime.text.tokenizer import Tokenizer

Params = Mapping[str, Any] | SamplingParams | None

_STOP_S = 15.0
"""How long a server that was told to end may take before it is killed."""

_COMMAND = (sys.executable, "-m", "sglang_lite.launch_server", "--owned")
_numbers = itertools.count()
_live: weakref.WeakValueDictionary[str, Runtime] = weakref.WeakValueDictionary()


class Runtime:
    """A server on a free port of this machine, and a handle of it.

    It is started when this is made, which waits until the model is loaded, and ends with `shutdown`, with the last
    reference, or with this process, however that ends. A script needs no `__main__` guard, and several may live at once.
    `url` names it as a backend (`f.run(backend=runtime.url)`), as this object and `endpoint` do.

    Args:
        model_path: a GGUF file, a model folder or a name of the hub; None: the embedded model.
        log_level: `info` shows a line for each request on standard error.
        **server_args: settings of the engine and of the server, under the names of their flags. `port` 0, the default: a
            free one. `api_key`: the key that the server asks for; it stands on no command line.

    Raises:
        ModelLoadError: the model is missing or damaged.
        RequestError, UnsupportedError: a setting is unknown, wrong or not supported.
        EngineStoppedError: the process ended for a reason that it did not tell.
    """

    def __init__(
        self, model_path: str | os.PathLike[str] | None = None, log_level: str = "error", **server_args: Any
    ) -> None:
        path = None if model_path is None else os.fspath(model_path)
        settings = {"port": 0, "drain_deadline_s": 1.0, **server_args, "model_path": path, "log_level": log_level}
        self._process = _start(settings)
        self._end = weakref.finalize(self, _end, self._process, os.getpid())
        try:
            facts = self._first_word()
            self.url: str = facts["ready"]
            self.endpoint = RuntimeEndpoint(self.url, server_args.get("api_key"))
            self._http = HttpClient(self.url, server_args.get("api_key"))
        except BaseException:
            self._end()
            raise
        self.pid: int = facts["pid"]
        """Of the server's process."""
        self._name = f"runtime:{next(_numbers)}"
        _live[self._name] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def name(self) -> str:
        """`runtime:N`, another string that names it as a backend in this process."""
        return self._name

    def shutdown(self) -> None:
        """End the server: open requests get a second, then they fail. Idempotent."""
        if self._end.alive:
            self.endpoint.shutdown()
            self._end()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, in this process."""
        from sglang_lite.runtime.server.ipc.process import load_model_tokenizer  # torch-free, but heavy: only if asked

        return load_model_tokenizer(str(self.endpoint.model_info["model_path"]))

    def cache_prefix(self, prefix: str) -> None:
        """Compute a prefix, so that a later prompt that begins with it finds it cached."""
        self.endpoint.cache_prefix(prefix)

    def generate(
        self,
        prompt: str | Sequence[str],
        sampling_params: Params | Sequence[Params] = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        lora_path: Sequence[str | None] | None = None,
    ) -> str:
        """The reply as a JSON text: an object, or a list of them for a list of prompts.

        Raises:
            RequestError, ExecutionError: what the server said.
        """
        reply = self.endpoint.generate(
            prompt if isinstance(prompt, str) else list(prompt),
            plain_params(sampling_params),  # pyright: ignore[reportArgumentType] - the route takes lists, too
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            lora_path=lora_path,
        )
        return json.dumps(reply)

    async def async_generate(self, prompt: str, sampling_params: Params = None) -> AsyncIterator[str]:
        """Generate for one prompt; yields the pieces of text as they come.

        Raises:
            RequestError, ExecutionError: what the server said.
        """
        pieces: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: str | Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, item)

        async def read() -> None:
            body = {"text": prompt, "sampling_params": plain_params(sampling_params), "stream": True}
            sent = 0
            try:
                async for event_id, data in self._http.events("POST", "/generate", body, {}):
                    if event_id == HEADERS_ID or data == "[DONE]":
                        continue
                    reply = json.loads(data)
                    if "error" in reply:
                        raise error_from_json(reply["error"])
                    text: str = reply["text"]
                    put(text[sent:])
                    sent = len(text)
            except RefusedError as error:
                put(error_of(error.answer, "generating"))
            except Exception as error:  # noqa: BLE001 - whoever reads gets it
                put(error)
            put(None)

        reading = shared_loop.start(read())
        try:
            while (piece := await pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                if piece:
                    yield piece
        finally:
            reading.cancel()

    add_request = async_generate

    def encode(self, prompt: str | Sequence[str]) -> str:
        """SGLang's name for embeddings, which are not supported.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "encoding by a Runtime: embeddings are not supported; get_tokenizer().encode(...) gives token ids"
        )

    async def get_server_info(self) -> dict[str, Any]:
        """The effective configuration and counters."""
        return await asyncio.to_thread(self.endpoint.get_server_info)

    def _first_word(self) -> dict[str, Any]:
        """What the process says first: that it is ready, or why it is not."""
        assert self._process.stdout is not None, "started with a pipe"
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise EngineStoppedError(f"starting a Runtime: its process ended with exit code {code}; see its messages")
        facts = json.loads(line)
        if "error" in facts:
            raise error_from_json(facts["error"])
        return facts


def runtime_named(rest: str) -> RuntimeEndpoint:
    """The backend of the living `Runtime` whose `name` is `runtime:REST`.

    Raises:
        RequestError: there is none.
    """
    found = _live.get(f"runtime:{rest}")
    if found is None:
        raise RequestError(f"finding the backend 'runtime:{rest}': no such Runtime lives in this process")
    return found.endpoint


def plain_params(params: Params | Sequence[Params]) -> Any:
    """Sampling parameters as JSON takes them: of an object what differs from its defaults."""
    if isinstance(params, SamplingParams):
        standard = SamplingParams()
        return {
            f.name: _plain(getattr(params, f.name))
            for f in fields(SamplingParams)
            if getattr(params, f.name) != getattr(standard, f.name)
        }
    if isinstance(params, Mapping) or params is None:
        return None if params is None else {name: _plain(value) for name, value in params.items()}
    return [plain_params(one) for one in params]


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset | set):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _start(settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    try:
        line = json.dumps({name: _setting(value) for name, value in settings.items()})
    except TypeError as error:
        raise RequestError(f"starting a Runtime: a setting is no plain value: {error}") from None
    # A session of its own: Ctrl-C at the terminal reaches this process, which ends the server after its requests.
    process = subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=env.for_child()
    )
    assert process.stdin is not None, "started with a pipe"
    with suppress(BrokenPipeError):  # it ended already; the reader of its first word says so
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
    return process


def _setting(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        raise TypeError(f"{type(value).__name__}")
    return value


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """Close the pipe, which tells the server to end, and see that it does. In a fork the server belongs to the parent."""
    if os.getpid() != pid:
        return
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
