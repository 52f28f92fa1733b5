"""When a call of a hosted API is made again, and what its final error says; keys never stand in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sglang_lite.errors import ContextLengthError, ExecutionError, QueueFullError, RequestError, SglangLiteError

T = TypeVar("T")

_MAX_WAIT_S = 60.0
_AGAIN = (408, 409, 429)
_KEY = re.compile(r"\b[spr]k-[A-Za-z0-9_\-*.]{6,}|\bBearer \S+")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is made again: after 408, 409, 429, 5xx and broken connections.

    The wait begins with `first_wait_s` and doubles; a `Retry-After` of the API stands in its place. `sleep`: how the
    wait is done.
    """

    max_retries: int = 4
    first_wait_s: float = 0.5
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def call(self, make: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool] = lambda: True) -> T:
        """Await `make()`, again where that may help and `may_repeat()` (nothing was handed on yet).

        Raises:
            Exception: the last call's error, as the client raised it.
        """
        for attempt in range(self.max_retries + 1):
            try:
                return await make()
            except Exception as error:
                if attempt == self.max_retries or not is_transient(error) or not may_repeat():
                    raise
                wait = retry_after(error)
                if wait is None:
                    wait = self.first_wait_s * 2**attempt
                elif wait > _MAX_WAIT_S:
                    raise
            await self.sleep(wait)
        raise AssertionError("a retry loop ended without a result")


def status_of(error: BaseException) -> int | None:
    """The HTTP status of a client's error; None: no answer came."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def is_transient(error: BaseException) -> bool:
    """True when the same call may succeed later."""
    if isinstance(error, SglangLiteError):
        return False
    status = status_of(error)
    if status is None:
        return "Connection" in type(error).__name__ or "Timeout" in type(error).__name__
    return status in _AGAIN or status >= 500


def retry_after(error: BaseException) -> float | None:
    """Seconds that the API asks to wait; None: it does not say."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name)) * factor)
        except (TypeError, ValueError):  # absent, or a date
            continue
    return None


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """`text` without the keys, and without what looks like one."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _KEY.sub("***", text)


def final_error(error: Exception, name: str, secrets: tuple[str, ...]) -> Exception:
    """What the program meets in place of a client's error."""
    if isinstance(error, SglangLiteError):
        return error
    status = status_of(error)
    body = redacted(str(error), secrets)[:500]
    what = f"calling {name}: "
    if status is None:
        return ExecutionError(f"{what}{type(error).__name__}: {body}; is the API reachable?")
    code = str(getattr(error, "code", "") or "") + body
    if "context_length" in code or "prompt is too long" in code:
        return ContextLengthError(f"{what}{body}")
    if status in (401, 403):
        return RequestError(
            f"{what}it refused the key (HTTP {status}); give api_key=..., or set the API's own variable"
        )
    if status == 429:
        return QueueFullError(f"{what}it stayed at its limit of requests (HTTP 429): {body}")
    if 400 <= status < 500:
        return RequestError(f"{what}HTTP {status}: {body}")
    return ExecutionError(f"{what}HTTP {status}: {body}")
