"""Where lines about a long start go: to the screen, or to whoever shows them; it knows not what they say."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

_to: Callable[[str], None] | None = None
_lock = threading.Lock()


def tell(line: str) -> None:
    """A long wait begins: on the screen, since a silent program looks hung."""
    if _to is not None:
        _to(line)
        return
    sys.stderr.write(f"sglang_lite: {line}\n")
    sys.stderr.flush()


def progress(line: str) -> None:
    """A stage of the start begins; for whoever shows them, an engine in a program says nothing."""
    if _to is not None:
        _to(line)


@contextmanager
def told(to: Callable[[str], None]) -> Generator[None]:
    """Inside the block lines go to `to`."""
    global _to
    with _lock:
        before, _to = _to, to
    try:
        yield
    finally:
        with _lock:
            _to = before
