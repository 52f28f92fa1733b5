"""What the server needs of an engine; the in-process `Engine` fits, and so may a client of one in another process."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from sglang_lite.request_tree import EventSink, Finding, Program, RequestTree, TreeRow
from sglang_lite.runtime.text.tokenizer import Tokenizer


class EnginePort(Protocol):
    """A running engine."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        ...

    def async_generate(self, *, sampling_params: Any = None, stream: bool = False, **inputs: Any) -> Awaitable[Any]:
        """Start requests; see `Engine.async_generate`. Wrong arguments raise at the call."""
        ...

    def abort(self, rid: str) -> None:
        """End a request wherever it is."""
        ...

    def flush_cache(self) -> bool:
        """Forget all prefixes; waits for the step that runs."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """Configuration and counters; waits for the step that runs."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Counters of a moment ago; waits for nothing."""
        ...

    def check_running(self) -> None:
        """Raise `EngineStoppedError` where it does not run; waits for nothing."""
        ...

    def call(self, name: str, **arguments: Any) -> Any:
        """A function of `Engine.calls` by name; waits for the step that runs."""
        ...

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> Program:
        """Start a program whose events go to `sink`, on a thread of the engine."""
        ...

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> Sequence[Program]:
        """Start a program for each row of arguments of one tree; see `request_tree.RowsBackend`."""
        ...

    def check(self, tree: RequestTree) -> list[Finding]:
        """What is wrong with a tree before it runs; waits for its grammars. See `request_tree.TreeChecker`."""
        ...
