"""Keeps the cached prefixes of different API keys apart: a request reuses what its own key's requests computed, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from sglang_lite.request_tree import EventSink, Finding, Program, RequestTree, TreeRow
from sglang_lite.runtime.server.asgi import App, Receive, Scope, Send, headers_of
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.text.tokenizer import Tokenizer

_space: ContextVar[str] = ContextVar("sglang_lite_cache_space", default="")
"""A name for the key of the request under way, from which the key cannot be told."""


class KeySpaces:
    """Names the space of each request after its key; it checks none."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on inside its space."""
        given = headers_of(scope, b"authorization") if scope["type"] == "http" else []
        token = _space.set(sha256(b"cache space:" + given[0]).hexdigest()[:32] if given else "")
        try:
            await self._app(scope, receive, send)
        finally:
            _space.reset(token)


class IsolatedEngine:
    """`engine`, whose requests and programs are salted with the space of the HTTP request that starts them."""

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._engine.tokenizer

    def async_generate(self, *, sampling_params: Any = None, stream: bool = False, **inputs: Any) -> Awaitable[Any]:
        """As the engine's; a salt of the client's divides its own space further."""
        salt = f"{_space.get()}/{inputs.pop('cache_salt', None) or ''}"
        return self._engine.async_generate(sampling_params=sampling_params, stream=stream, cache_salt=salt, **inputs)

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> Program:
        """As the engine's."""
        return self._engine.open_program(sink, seed=seed, cache_salt=f"{_space.get()}/{cache_salt}")

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> Sequence[Program]:
        """As the engine's."""
        return self._engine.open_rows(tree, rows, cache_salt=f"{_space.get()}/{cache_salt}")

    def check(self, tree: RequestTree) -> list[Finding]:
        """As the engine's."""
        return self._engine.check(tree)

    def abort(self, rid: str) -> None:
        """As the engine's."""
        self._engine.abort(rid)

    def flush_cache(self) -> bool:
        """As the engine's."""
        return self._engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.get_server_info()

    def check_running(self) -> None:
        """As the engine's."""
        self._engine.check_running()

    def snapshot(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.snapshot()

    def call(self, name: str, **arguments: Any) -> Any:
        """As the engine's."""
        return self._engine.call(name, **arguments)
