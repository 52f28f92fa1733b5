"""Carries a request's results from the engine's thread to the caller that waits for them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any

from sglang_lite.errors import CancelledError, EngineStoppedError, SglangLiteError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.scheduler.messages import ReqOutput

Reply = dict[str, Any]
"""SGLang's reply: `text`, `output_ids`, `meta_info`."""


class ReplyBuilder:
    """Gathers one request on the engine's thread and delivers replies: each one when `stream`, else the last only."""

    def __init__(
        self,
        generation: Generation,
        logprob: LogprobParams | None,
        token_text: Callable[[int], str],
        deliver: Callable[[Reply, SglangLiteError | None, bool], None],
        *,
        stream: bool,
    ) -> None:
        self._generation = generation
        self._logprob = logprob
        self._token_text = token_text
        self._deliver = deliver
        self._stream = stream

    def on_output(self, out: ReqOutput) -> None:
        """Take one output of the scheduler."""
        self._generation.take(out)
        if out.finished is not None or self._stream:
            error = out.finished.error if out.finished is not None else None
            self._deliver(self.reply(), error, out.finished is not None)

    def reply(self) -> Reply:
        """The reply so far; text and ids are cumulative."""
        generation = self._generation
        return {
            "text": generation.text,
            "output_ids": list(generation.output_ids),
            "meta_info": generation.meta(self._logprob, self._token_text),
        }


class Mailbox:
    """Replies of several requests, in the order they come: (index, reply, error, is last of its request)."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[tuple[int, Reply, SglangLiteError | None, bool]] = queue.SimpleQueue()

    def deliverer(self, index: int) -> Callable[[Reply, SglangLiteError | None, bool], None]:
        """What the request number `index` calls with its replies."""
        return lambda reply, error, last: self._items.put((index, reply, error, last))

    def get(self) -> tuple[int, Reply, SglangLiteError | None, bool]:
        """Wait for the next item; Ctrl-C interrupts the wait."""
        return self._items.get()


def raise_if_failed(error: SglangLiteError | None, is_single: bool) -> None:
    """Raise what ended a request, but for an abort, whose reply, cut short, is the answer.

    In a list a failed request harms no other, so its reply tells; only the end of the engine ends the whole call.
    """
    if isinstance(error, EngineStoppedError) or (is_single and error and not isinstance(error, CancelledError)):
        raise error


def in_order(replies: Sequence[Reply | None]) -> list[Reply]:
    """All replies; none may be missing."""
    assert all(reply is not None for reply in replies), "every request has answered"
    return [reply for reply in replies if reply is not None]
