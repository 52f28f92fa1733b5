"""`/v1/responses`: OpenAI's newer form of chats, without a store."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.errors import SglangLiteError
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.chat_run import ChatRun
from sglang_lite.runtime.server.errors import HttpError, error_body, json_response
from sglang_lite.runtime.server.openai_logprobs import chat_logprobs
from sglang_lite.runtime.server.openai_replies import Delta, Reply, finish_reason
from sglang_lite.runtime.server.responses_input import ResponsesBody
from sglang_lite.runtime.server.responses_stream import ItemWriter
from sglang_lite.runtime.server.service import Service, facts_of
from sglang_lite.runtime.server.sse import EventStream, named_event, started

Json = dict[str, Any]


def responses_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.post("/v1/responses")
    async def responses(request: Request) -> Response:
        body = await service.bodies.read(request, ResponsesBody)
        return await _Response(request, body, await ChatRun.of(service, body.chat())).respond()

    @router.get("/v1/responses/{response_id}")
    async def stored(response_id: str) -> Response:
        raise HttpError(404, f"no response {response_id!r:.80}: this server stores none", code="not_found")

    return router


class _Response:
    """One response on its way."""

    def __init__(self, request: Request, body: ResponsesBody, run: ChatRun) -> None:
        self._request = request
        self._body = body
        self._run = run
        self._reader = run.reader()
        self._writer = ItemWriter()
        self._head: Json = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(datetime.now(UTC).timestamp()),
            "model": run.service.model_name,
        }

    async def respond(self) -> Response:
        """The answer or its stream."""
        if self._body.stream:
            patience_s = self._run.service.config.heartbeat_s
            events = self._events(await self._run.coming())
            return EventStream(await started(self._request, events, patience_s), patience_s)
        (reply,) = await self._run.replies(self._request)
        list(self._take(reply, 0, len(reply["output_ids"]), is_end=True))
        list(self._writer.finish(_status(reply)))
        return json_response(self._whole(reply))

    async def _events(self, coming: AsyncGenerator[Delta, None]) -> AsyncGenerator[str, None]:
        number = 0
        reply: Reply | None = None

        def numbered(data: Json) -> str:
            nonlocal number
            number += 1
            return named_event(data["type"], data | {"sequence_number": number - 1})

        try:
            async for delta in coming:
                if reply is None:
                    for kind in ("response.created", "response.in_progress"):
                        yield numbered({"type": kind, "response": self._snapshot("in_progress")})
                reply = delta.reply
                for data in self._take(reply, delta.first, delta.end, is_end=delta.finish_reason is not None):
                    yield numbered(data)
            assert reply is not None, "a stream has at least one reply"
            for data in self._writer.finish(_status(reply)):
                yield numbered(data)
            whole = self._whole(reply)
            self._run.service.count(self._run.usage([reply]))
            yield numbered({"type": f"response.{whole['status']}", "response": whole})
        except SglangLiteError as error:  # the form of a stream has its own word for it
            if reply is None:
                raise  # nothing was sent: the status tells
            note(self._request.scope, error=type(error).__name__)
            inner = error_body(error, is_openai=True)["error"]
            failed = self._snapshot("failed") | {"error": {"code": "server_error", "message": inner["message"]}}
            yield numbered({"type": "response.failed", "response": failed})
        finally:
            await coming.aclose()

    def _take(self, reply: Reply, first: int, end: int, *, is_end: bool) -> list[Json]:
        logprobs: list[Json] = []
        if self._run.body.logprobs:
            logprobs = chat_logprobs(self._run.service.tokenizer, reply["meta_info"], first, end)["content"]
        events: list[Json] = []
        for part in self._reader.feed(reply["text"], is_end=is_end):
            events += self._writer.take(part, logprobs if part.kind == "text" else [])
            logprobs = [] if part.kind == "text" else logprobs
        return events

    def _whole(self, reply: Reply) -> Json:
        usage = self._run.usage([reply])
        note(self._request.scope, **facts_of(usage, [finish_reason(reply)]))
        status = _status(reply)
        thought = usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0)
        whole = self._snapshot(status)
        whole["usage"] = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
                "cache_write_tokens": 0,
            },
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": usage["total_tokens"],
        }
        if status == "incomplete":
            whole["incomplete_details"] = {"reason": "max_output_tokens"}
        if notes := reply["meta_info"].get("grammar_notes"):
            whole["grammar_notes"] = notes
        return whole

    def _snapshot(self, status: str) -> Json:
        """The response as it is now; `store` is false whatever was asked for."""
        body, params = self._body, self._run.params
        reasoning = body.reasoning or {}
        return {
            **self._head,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "output": list(self._writer.items),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": reasoning.get("effort"), "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": params.temperature,
            "text": body.text or {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
        }


def _status(reply: Reply) -> str:
    return "incomplete" if finish_reason(reply) in ("length", "abort") else "completed"
