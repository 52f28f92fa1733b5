"""Anthropic's `/v1/messages` and its counting of tokens."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.answer_reader import Part
from sglang_lite.runtime.server.anthropic_input import CountBody, MessagesBody
from sglang_lite.runtime.server.chat_run import ChatRun, read_whole, reason_of
from sglang_lite.runtime.server.errors import json_response
from sglang_lite.runtime.server.openai_replies import Delta, Reply, finish_reason
from sglang_lite.runtime.server.service import Service, facts_of
from sglang_lite.runtime.server.sse import EventStream, named_event, started

Json = dict[str, Any]

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "abort": "max_tokens"}


def anthropic_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.post("/v1/messages")
    async def messages(request: Request) -> Response:
        body = await service.bodies.read(request, MessagesBody)
        return await _Message(request, body, await ChatRun.of(service, body.chat())).respond()

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> Response:
        body = await service.bodies.read(request, CountBody)
        run = await ChatRun.of(service, body.chat())
        return json_response({"input_tokens": len(run.ids)})

    return router


class _Message:
    """One answer on its way."""

    def __init__(self, request: Request, body: MessagesBody, run: ChatRun) -> None:
        self._request = request
        self._stops = body.stop_sequences or []
        self._is_stream = body.stream
        self._run = run
        self._reader = run.reader()
        self._block = -1
        self._kind = ""
        self._head: Json = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": run.service.model_name,
        }

    async def respond(self) -> Response:
        """The answer or its stream."""
        if self._is_stream:
            patience_s = self._run.service.config.heartbeat_s
            events = self._events(await self._run.coming())
            return EventStream(await started(self._request, events, patience_s), patience_s)
        (reply,) = await self._run.replies(self._request)
        reason = read_whole(self._reader, reply)
        answer = self._reader.answer
        content: list[Json] = []
        if answer.thinking:
            content.append({"type": "thinking", "thinking": answer.thinking, "signature": ""})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)})
        end = self._end(reply, reason)
        return json_response(self._head | {"content": content} | end | {"usage": self._usage(reply)})

    async def _events(self, coming: AsyncGenerator[Delta, None]) -> AsyncGenerator[str, None]:
        delta: Delta | None = None
        try:
            async for delta in coming:
                if delta.is_start:
                    meta = delta.reply["meta_info"]
                    cached = meta.get("cached_tokens", 0)
                    usage = {"input_tokens": meta["prompt_tokens"] - cached, "cache_read_input_tokens": cached}
                    usage |= {"cache_creation_input_tokens": 0, "output_tokens": 0}
                    empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
                    yield _event("message_start", message=self._head | empty)
                for part in self._reader.feed(delta.reply["text"], is_end=delta.finish_reason is not None):
                    for text in self._part(part):
                        yield text
            assert delta is not None, "a stream has at least one reply"
            if self._kind:
                yield _event("content_block_stop", index=self._block)
            usage = self._usage(delta.reply)
            self._run.service.count(self._run.usage([delta.reply]))
            end = self._end(delta.reply, reason_of(self._reader, delta.finish_reason))
            yield _event("message_delta", delta=end, usage=usage)
            yield _event("message_stop")
        finally:
            await coming.aclose()

    def _part(self, part: Part) -> Iterator[str]:
        match part.kind:
            case "thinking":
                yield from self._open(part.kind, {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": part.text})
            case "text":
                yield from self._open(part.kind, {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": part.text})
            case "call":
                self._kind, was = "", self._kind
                if was:
                    yield _event("content_block_stop", index=self._block)
                block: Json = {"type": "tool_use", "id": part.call_id, "name": part.text, "input": {}}
                yield from self._open(part.kind, block)
            case "arguments":
                yield self._delta({"type": "input_json_delta", "partial_json": part.text})

    def _open(self, kind: str, block: Json) -> Iterator[str]:
        if self._kind == kind:
            return
        if self._kind:
            yield _event("content_block_stop", index=self._block)
        self._kind = kind
        self._block += 1
        yield _event("content_block_start", index=self._block, content_block=block)

    def _delta(self, delta: Json) -> str:
        return _event("content_block_delta", index=self._block, delta=delta)

    def _usage(self, reply: Reply) -> Json:
        usage = self._run.usage([reply])
        note(self._request.scope, **facts_of(usage, [finish_reason(reply)]))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }

    def _end(self, reply: Reply, reason: str | None) -> Json:
        matched = (reply["meta_info"]["finish_reason"] or {}).get("matched")
        if reason == "stop" and matched in self._stops:
            return {"stop_reason": "stop_sequence", "stop_sequence": matched}
        return {"stop_reason": _REASONS[reason or "stop"], "stop_sequence": None}


def _event(kind: str, **fields: Any) -> str:
    return named_event(kind, {"type": kind, **fields})


def _arguments(text: str) -> Json:
    """The input of a call; of one that the length has cut: nothing."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
