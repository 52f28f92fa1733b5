"""From an engine's cumulative replies to OpenAI's pieces: deltas, finish reasons, usage, ids of responses."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sglang_lite.op_json import error_from_json
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.server.openai_schemas import SamplingBody
from sglang_lite.runtime.server.service import Service, usage_of
from sglang_lite.runtime.server.sse import DONE, event

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """What is the same in every chunk of one response."""

    id: str
    object: str
    created: int
    model: str

    @staticmethod
    def new(prefix: str, object_name: str, model: str) -> Head:
        """A response of its own."""
        return Head(f"{prefix}-{secrets.token_hex(12)}", object_name, int(datetime.now(UTC).timestamp()), model)

    def with_choices(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A response or chunk."""
        fields = {"id": self.id, "object": self.object, "created": self.created, "model": self.model}
        return fields | {"choices": choices} | more


@dataclass(slots=True)
class Delta:
    """What is new of one choice: `text`, its tokens from `first` to `end` (for log-probabilities), why it ended."""

    index: int
    reply: Reply
    text: str
    first: int
    end: int
    finish_reason: str | None
    is_start: bool


def raise_if_failed(reply: Reply) -> None:
    """Raise what ended a request of several; one that was aborted by its owner is an answer, cut short.

    Raises:
        SglangLiteError: the request's own error.
    """
    reason = reply["meta_info"]["finish_reason"] or {}
    if reason.get("type") == "abort" and reason.get("err_type", "CancelledError") != "CancelledError":
        raise error_from_json({"type": reason["err_type"], "message": reason["message"]})


def finish_reason(reply: Reply) -> str | None:
    """`stop`, `length` or `abort`; None while it runs."""
    reason = reply["meta_info"]["finish_reason"]
    return None if reason is None else reason["type"]


async def answers(service: Service, id_lists: list[list[int]], params: SamplingParams, **logprob: Any) -> list[Reply]:
    """All replies, sample after sample, prompt after prompt.

    Raises:
        SglangLiteError: one of them failed.
    """
    is_single = len(id_lists) == 1 and params.n == 1
    given = id_lists[0] if is_single else id_lists
    got = await service.engine.async_generate(input_ids=given, sampling_params=params, **logprob)
    replies: list[Reply] = [got] if is_single else got
    for reply in replies:
        raise_if_failed(reply)
    service.count(usage_of(replies, params.n))
    return replies


async def stream_of(
    service: Service, id_lists: list[list[int]], params: SamplingParams, **logprob: Any
) -> AsyncIterator[Reply]:
    """The replies as they grow."""
    is_single = len(id_lists) == 1 and params.n == 1
    given = id_lists[0] if is_single else id_lists
    return await service.engine.async_generate(input_ids=given, sampling_params=params, stream=True, **logprob)


async def deltas(replies: AsyncIterator[Reply], visible_bytes: Sequence[bytes]) -> AsyncGenerator[Delta, None]:
    """What each reply adds. Tokens are told once their whole text is out: a stop string may still take them back."""
    sent_text: dict[int, int] = {}
    sent_tokens: dict[int, int] = {}
    async for reply in replies:
        raise_if_failed(reply)
        index = reply.get("index", 0)
        is_start = index not in sent_text
        first_char, first = sent_text.get(index, 0), sent_tokens.get(index, 0)
        reason = finish_reason(reply)
        text = reply["text"][first_char:]
        if not (text or reason or is_start):
            continue
        end = first
        if reason:
            end = max(first, len(reply["output_ids"]))
        elif text:
            end = max(first, _num_shown(reply, first, visible_bytes))
        sent_text[index], sent_tokens[index] = first_char + len(text), end
        yield Delta(index, reply, text, first, end, reason, is_start)


def _num_shown(reply: Reply, first: int, visible_bytes: Sequence[bytes]) -> int:
    """How many output tokens lie wholly inside the text that is out."""
    ids = reply["output_ids"]
    room = len(reply["text"].encode()) - sum(len(visible_bytes[i]) for i in ids[:first])
    for count, token_id in enumerate(ids[first:], first):
        room -= len(visible_bytes[token_id])
        if room < 0:
            return count
    return len(ids)


async def chunk_events(
    service: Service,
    body: SamplingBody,
    head: Head,
    coming: AsyncGenerator[Delta, None],
    to_choices: Callable[[Delta], list[dict[str, Any]]],
    on_end: Callable[[list[Reply]], dict[str, Any]],
) -> AsyncGenerator[str, None]:
    """The events of a stream: chunks, one of usage (which `on_end` makes) where it is asked for, the end."""
    more = {"usage": None} if body.wants_usage else {}
    last: dict[int, Reply] = {}
    try:
        async for delta in coming:
            last[delta.index] = delta.reply
            for choice in to_choices(delta):
                yield event(head.with_choices([choice], **more))
        usage = on_end([last[index] for index in sorted(last)])
        service.count(usage)
        if body.wants_usage:
            yield event(head.with_choices([], usage=usage))
        yield DONE
    finally:
        await coming.aclose()
