"""`Runtime`: an engine in this process behind the methods of SGLang's server handle; it adds no behaviour of its own."""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self, cast

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.op_json import finite
from sglang_lite.request_tree import EventSink
from sglang_lite.runtime.engine.engine import Engine, EngineProgram
from sglang_lite.runtime.engine.requests import Params
from sglang_lite.runtime.text.tokenizer import Tokenizer

_numbers = itertools.count()
_live: weakref.WeakValueDictionary[str, Runtime] = weakref.WeakValueDictionary()


class RuntimeBackend:
    """The engine as a backend for programs, with what SGLang's endpoint object can be asked besides."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get_model_name(self) -> str:
        """The path of the model, or the name of the embedded one."""
        return str(self._engine.get_server_info().get("model_path") or "embedded")

    def cache_prefix(self, prefix_str: str) -> None:
        """Compute a prefix, so that a later prompt that begins with it finds it cached."""
        self._engine.generate(prefix_str, {"max_new_tokens": 0})

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> EngineProgram:
        """As `Engine.open_program`."""
        return self._engine.open_program(sink, seed=seed)

    def flush_cache(self) -> bool:
        """As `Engine.flush_cache`."""
        return self._engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """As `Engine.get_server_info`."""
        return self._engine.get_server_info()

    def shutdown(self) -> None:
        """As `Engine.shutdown`."""
        self._engine.shutdown()


class Runtime:
    """An engine in this process with the methods of SGLang's `Runtime`; takes what `Engine` takes.

    Several may live at once; each ends with `shutdown`, or with the process. A script needs no `__main__` guard: no
    process is started. `url` names it as a backend (`f.run(backend=runtime.url)`); nothing listens on a port.

    Raises:
        ModelLoadError, RequestError: as `Engine`.
    """

    def __init__(self, model_path: str | os.PathLike[str] | None = None, **server_args: Any) -> None:
        self.engine = Engine(model_path, **server_args)
        self.endpoint = RuntimeBackend(self.engine)
        self.url = f"runtime:{next(_numbers)}"
        _live[self.url] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Stop; idempotent."""
        self.engine.shutdown()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

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
        """The reply of `Engine.generate` as a JSON text: an object, or a list of them for a list of prompts.

        Raises:
            RequestError, ExecutionError: as `Engine.generate`.
        """
        reply = self.engine.generate(
            prompt,
            sampling_params,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            lora_path=lora_path,
        )
        return json.dumps(finite(reply))

    async def async_generate(self, prompt: str, sampling_params: Mapping[str, Any] | None = None) -> AsyncIterator[str]:
        """Generate for one prompt; yields the pieces of text as they come."""
        replies = cast(
            "AsyncIterator[dict[str, Any]]", await self.engine.async_generate(prompt, sampling_params, stream=True)
        )
        sent = 0
        async for reply in replies:
            text: str = reply["text"]
            if len(text) > sent:
                yield text[sent:]
                sent = len(text)

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
        return self.engine.get_server_info()


def runtime_named(rest: str) -> RuntimeBackend:
    """The backend of the living `Runtime` whose `url` is `runtime:REST`.

    Raises:
        RequestError: there is none.
    """
    found = _live.get(f"runtime:{rest}")
    if found is None:
        raise RequestError(f"finding the backend 'runtime:{rest}': no such Runtime lives in this process")
    return found.endpoint
