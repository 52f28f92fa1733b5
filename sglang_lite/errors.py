"""Errors that both the language and the runtime raise.

::

    SglangLiteError
    ├── RequestError (ValueError)        what was asked cannot be served: the caller's fault, raised before any work
    │   ├── UnsupportedError             a feature, input or parameter that is not built; names it
    │   ├── ContextLengthError           more tokens than the model's context or the whole KV pool holds
    │   └── GrammarError                 a constraint that cannot be compiled; names the place
    ├── ProgramError (RuntimeError)      a program used the language wrongly (nested roles, use after end, ...)
    ├── ModelLoadError (RuntimeError)    a model file is missing, damaged or unknown; names file and tensor
    └── ExecutionError (RuntimeError)    a valid request ended without a result
        ├── CancelledError               aborted by its owner (abort, cancel, Ctrl-C, a sibling that won)
        │   └── ProgramTimeoutError      a run took longer than its `RunOptions(timeout=...)` (also a TimeoutError)
        ├── QueueFullError               the waiting queue is at its limit: try again later
        ├── KvOutOfMemoryError           the last running request could not get one more page
        ├── DeadEndError                 no token of the vocabulary continues the constraint
        ├── TruncatedError               a typed or schema value was cut before it was complete; has the parts that are
        ├── ValidationError              a text is no value of its type (also a ValueError); says what is wrong where
        └── EngineStoppedError           the engine was shut down, died, or is used after fork()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SglangLiteError(Exception):
    """Base of every error this package raises on purpose."""


class RequestError(SglangLiteError, ValueError):
    """What was asked cannot be served; nothing was started."""


class UnsupportedError(RequestError):
    """A named feature, input or parameter that is not built."""


class ContextLengthError(RequestError):
    """The request needs more tokens than the context or the KV pool can ever hold."""


class GrammarError(RequestError):
    """A regex, choice list or schema that cannot be compiled."""


class ProgramError(SglangLiteError, RuntimeError):
    """A program used the language in a way that has no meaning."""


class ModelLoadError(SglangLiteError, RuntimeError):
    """A model could not be loaded; no half-loaded model is left behind."""


class ExecutionError(SglangLiteError, RuntimeError):
    """A valid request ended without a result."""


class CancelledError(ExecutionError):
    """The request was aborted by its owner."""


class ProgramTimeoutError(CancelledError, TimeoutError):
    """A run took longer than it was allowed to; what was still running was cancelled."""


class QueueFullError(ExecutionError):
    """The waiting queue was at its limit; nothing was computed, and the same request may be served later."""


class KvOutOfMemoryError(ExecutionError):
    """The KV pool could not hold one more token of the only running request."""


class DeadEndError(ExecutionError):
    """No token of the vocabulary can continue the constraint."""


class TruncatedError(ExecutionError):
    """A value was cut by a limit of tokens before it was complete.

    `text`: what there is. `parts`: the elements that are complete, as values of their type; of an object its complete
    members as `(name, value)`.
    """

    def __init__(self, message: str, *, text: str = "", parts: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.text = text
        self.parts = list(parts)


class ValidationError(ExecutionError, ValueError):
    """A text is no value of the type that was asked for.

    `text`: the whole text. `failures`: path (`$.people[0].name`) and message of everything that is wrong.
    """

    def __init__(self, message: str, *, text: str = "", failures: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.text = text
        self.failures = tuple(failures)


class EngineStoppedError(ExecutionError):
    """The engine is not running (any more)."""
