"""What the hosted APIs have in common as backends: programs, retries, what was spent; each API brings an adapter."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sglang_lite.chat_formats import ChatFormat
from sglang_lite.errors import EngineStoppedError, RequestError
from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.asking import Asker
from sglang_lite.lang.backends.hosted.checker import Checker
from sglang_lite.lang.backends.hosted.messages import Adapter
from sglang_lite.lang.backends.hosted.program import HostedProgram
from sglang_lite.lang.backends.hosted.retry import RetryPolicy, final_error
from sglang_lite.lang.backends.http_client import shared_loop
from sglang_lite.lang.chat_templates import NamedTemplate, named_template
from sglang_lite.request_tree import EventSink


@dataclass(slots=True)
class TokenUsage:
    """Tokens that the API counted since it was made or `reset`, those of calls that were made again included."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0

    def reset(self) -> None:
        """Begin at 0."""
        self.prompt_tokens = self.completion_tokens = self.requests = 0


class HostedBackend:
    """A hosted API as a backend. Its calls run on the event loop of the process, none of them holds a thread.

    Args:
        template: how turns are written out as text, for `s.text()` and for models that take text only.
        secrets: what must stand in no message.
    """

    def __init__(
        self, adapter: Adapter, *, template: NamedTemplate | None, policy: RetryPolicy, secrets: tuple[str, ...]
    ) -> None:
        self.token_usage = TokenUsage()
        self._adapter = adapter
        self._template = template or named_template("default")
        self._policy = policy
        self._secrets = secrets
        self._asker = Asker(adapter, policy, self._template.stop_str, self._spend)
        self._programs: weakref.WeakSet[HostedProgram] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._close = weakref.finalize(self, _close, adapter)
        self._close.atexit = False

    def __repr__(self) -> str:
        return self.abilities.name

    @property
    def abilities(self) -> Abilities:
        """What the API can do."""
        return self._adapter.abilities

    def _spend(self, meta: dict[str, Any]) -> None:
        with self._lock:
            self.token_usage.prompt_tokens += meta.get("prompt_tokens") or 0
            self.token_usage.completion_tokens += meta.get("completion_tokens") or 0
            self.token_usage.requests += meta.get("requests") or 0

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> HostedProgram:
        """Start a program.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        return self.open_speculating(sink, seed, None)

    def open_speculating(self, sink: EventSink, seed: int | None, num_tokens: int | None) -> HostedProgram:
        """As `open_program`, with calls that write `num_tokens` ahead."""
        with self._lock:
            if self._is_stopped:
                raise EngineStoppedError(f"using {self!r}: it was shut down; make a new one")
            program = HostedProgram(
                self._asker,
                Checker(self.abilities, num_tokens),
                shared_loop,
                sink,
                role_text=self.role_text,
                describe=lambda error: final_error(error, repr(self), self._secrets),
                num_speculated=num_tokens,
                seed=seed,
            )
            self._programs.add(program)
        return program

    def role_text(self, role: str, before: Sequence[str]) -> tuple[str, str]:
        """What begins and ends a turn of `role`, written out as text."""
        return self._template.role_text(role)

    def with_speculation(self, num_tokens: int | None) -> HostedBackend | SpeculatingBackend:
        """What a program runs on whose calls write ahead; None: this backend itself."""
        return self if num_tokens is None else SpeculatingBackend(self, num_tokens)

    def chat_format(self) -> ChatFormat:
        """How calls of tools stand in the text; the API has them as its own."""
        return ChatFormat(tools="hermes", shows_tools=True, has_tool_role=True)

    def flush_cache(self) -> bool:
        """False: there is nothing here to forget."""
        return False

    def get_server_info(self) -> dict[str, Any]:
        """The kind of backend, its model, and what was spent."""
        usage = self.token_usage
        return {
            "backend": repr(self),
            "model_path": repr(self),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "requests": usage.requests,
        }

    def shutdown(self) -> None:
        """End the backend; open ops fail with `EngineStoppedError`. Idempotent."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            programs = list(self._programs)
        for program in programs:
            program.stop()
        self._close()


def _close(adapter: Adapter) -> None:
    shared_loop.start(adapter.close())


class SpeculatingBackend:
    """A hosted API for a program with `num_api_spec_tokens`; everything else is the API's backend."""

    def __init__(self, backend: HostedBackend, num_tokens: int) -> None:
        if type(num_tokens) is not int or num_tokens < 1:
            raise RequestError(f"reading num_api_spec_tokens: got {num_tokens!r}, expected a whole number >= 1")
        self.base = backend
        self._num_tokens = num_tokens

    def with_speculation(self, num_tokens: int | None) -> HostedBackend | SpeculatingBackend:
        """The API's backend for another program."""
        return self.base.with_speculation(num_tokens)

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> HostedProgram:
        """Start a program whose calls write ahead."""
        return self.base.open_speculating(sink, seed, self._num_tokens)

    def chat_format(self) -> ChatFormat:
        """See the backend."""
        return self.base.chat_format()

    def flush_cache(self) -> bool:
        """See the backend."""
        return self.base.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """See the backend."""
        return self.base.get_server_info()

    def shutdown(self) -> None:
        """See the backend."""
        self.base.shutdown()


def load_client(package: str) -> Any:
    """A client package, which is optional.

    Raises:
        RequestError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise RequestError(
            f"loading the client of a hosted API: {error}; install it: pip install 'sglang-lite[apis]'"
        ) from error
