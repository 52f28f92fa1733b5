"""One branch of a hosted program while it runs: its contents, its ops in order, and the task that does them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from sglang_lite.lang.backends.hosted.contents import Contents
from sglang_lite.request_tree import Op


@dataclass(eq=False, slots=True)
class HostedBranch:
    """`is_begun`: its fork is done, so that its ops may run. `idle`: set while it has nothing to do.

    `finished_at`: the place in the order in which branches became idle. `named`: the latest value of each name.
    """

    number: int
    parent: int | None = None
    contents: Contents = field(default_factory=Contents)
    start: Contents = field(default_factory=Contents)
    error: Exception | None = None
    is_begun: bool = False
    is_joined: bool = False
    queue: deque[Op] = field(default_factory=deque[Op])
    task: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    finished_at: int = 0
    named: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_finished(self) -> bool:
        """True when its ops so far are done or have failed."""
        return self.is_begun and not self.queue and self.task is None
