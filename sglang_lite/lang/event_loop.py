"""The event loop of the process for `async def` bodies that a caller without one runs; one daemon thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """An event loop on a thread of its own, started by its first task; it lives as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that `make` gives, which must not raise, in a copy of the caller's context."""
        context = contextvars.copy_context()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="sglang_lite-loop", daemon=True).start()
            loop = self._loop

        def begin() -> None:
            task = loop.create_task(make())
            self._tasks.add(task)  # a loop keeps only weak references to its tasks
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(begin, context=context)


def is_in_event_loop() -> bool:
    """True on a thread whose event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


shared_loop = LoopThread()
"""The loop of the process."""
