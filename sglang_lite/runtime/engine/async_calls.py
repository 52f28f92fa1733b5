"""Waits for replies on an event loop without blocking it; knows how to ask for work, not who does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from sglang_lite.errors import SglangLiteError
from sglang_lite.runtime.engine.reply import Mailbox, Reply, in_order, raise_if_failed
from sglang_lite.runtime.engine.requests import GenerateRequest


class Submitter(Protocol):
    """Where requests go: an engine in this process, or the client of one in another."""

    def submit(self, requests: Sequence[GenerateRequest], mailbox: Mailbox, *, stream: bool) -> list[str]:
        """Queue requests whose replies go to the mailbox; returns their ids."""
        ...

    def abort_all(self, rids: Sequence[str]) -> None:
        """End these requests; nobody reads their replies any more."""
        ...


async def replies_of(
    submitter: Submitter, requests: Sequence[GenerateRequest], is_single: bool, *, stream: bool
) -> Reply | list[Reply] | AsyncIterator[Reply]:
    """The replies of `requests`: one, a list in order, or with `stream` an async iterator of growing ones.

    Leaving early (a cancelled task, an iterator closed before its end) aborts what runs.

    Raises:
        SglangLiteError: see `Engine.generate`.
    """
    items = _items(submitter, requests, stream=stream)
    if stream:
        return _stream(items, is_single)
    replies: list[Reply | None] = [None] * len(requests)
    async with aclosing(items):
        async for index, reply, error, _last in items:
            replies[index] = reply
            raise_if_failed(error, is_single)
    return in_order(replies)[0] if is_single else in_order(replies)


async def _stream(items: AsyncGenerator[Any, None], is_single: bool) -> AsyncGenerator[Reply, None]:
    async with aclosing(items):
        async for index, reply, error, _last in items:
            raise_if_failed(error, is_single)
            yield reply if is_single else reply | {"index": index}


async def _items(
    submitter: Submitter, requests: Sequence[GenerateRequest], *, stream: bool
) -> AsyncGenerator[Any, None]:
    """Every item of the mailbox; leaving early aborts the requests."""
    mailbox = _LoopMailbox(asyncio.get_running_loop())
    rids = submitter.submit(requests, mailbox, stream=stream)
    left = len(requests)
    try:
        while left:
            item = await mailbox.arrived.get()
            left -= item[3]
            yield item
    finally:
        if left:
            submitter.abort_all(rids)


class _LoopMailbox(Mailbox):
    """A mailbox whose items arrive in an asyncio queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.arrived: asyncio.Queue[Any] = asyncio.Queue()

    def deliverer(self, index: int) -> Callable[[Reply, SglangLiteError | None, bool], None]:
        """What the request number `index` calls, on a thread of the engine."""

        def deliver(reply: Reply, error: SglangLiteError | None, last: bool) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.arrived.put_nowait, (index, reply, error, last))

        return deliver
