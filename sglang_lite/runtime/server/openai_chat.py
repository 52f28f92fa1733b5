"""`/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.chat_prompt import chat_ids
from sglang_lite.runtime.server.errors import FieldError, HttpError, json_response
from sglang_lite.runtime.server.openai_logprobs import chat_logprobs
from sglang_lite.runtime.server.openai_replies import (
    Delta,
    Head,
    Reply,
    answers,
    chunk_events,
    deltas,
    finish_reason,
    name_the_format,
    stream_of,
)
from sglang_lite.runtime.server.openai_schemas import ChatBody, max_tokens_of
from sglang_lite.runtime.server.service import Service, facts_of, usage_of
from sglang_lite.runtime.server.sse import EventStream, newest, started, unless_gone

MAX_LOGPROBS = 20


def chat_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter()
    model = Head.new("model", "model", service.model_name)
    card = {"id": model.model, "object": "model", "created": model.created, "owned_by": "sglang_lite"}
    card |= {"root": model.model, "parent": None, "max_model_len": service.context_length}

    @router.get("/v1/models")
    async def models() -> Response:
        return json_response({"object": "list", "data": [card]})

    @router.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        if name != service.model_name:
            raise HttpError(
                404, f"no model {name!r:.200}, this server has {service.model_name!r}", code="model_not_found"
            )
        return json_response(card)

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        body = await service.bodies.read(request, ChatBody)
        try:
            return await _Chat(service, request, body).respond()
        except UnsupportedError as error:
            if body.constraint():
                raise name_the_format(error) from error
            raise

    return router


class _Chat:
    """One request on its way."""

    def __init__(self, service: Service, request: Request, body: ChatBody) -> None:
        body.check(service.config.max_n)
        service.check_batch(body.n)
        _check_fields(body)
        self._service = service
        self._request = request
        self._body = body
        self._messages = body.messages_for_template()
        self._params = body.sampling(max_tokens_of(body), body.constraint())
        self._wanted: dict[str, Any] = {"rid": body.rid}
        if body.logprobs:
            self._wanted |= {"return_logprob": True, "top_logprobs_num": body.top_logprobs or 0}

    async def respond(self) -> Response:
        """The answer or its stream."""
        service, body = self._service, self._body
        ids = await asyncio.to_thread(  # a template is foreign code and may take its time
            chat_ids,
            service.tokenizer,
            service.chat,
            self._messages,
            body.chat_template_kwargs,
            continue_final=body.continue_final_message,
        )
        if body.stream:
            patience_s = service.config.heartbeat_s
            head = Head.new("chatcmpl", "chat.completion.chunk", service.model_name)
            replies = await stream_of(service, [ids], self._params, **self._wanted)
            coming = deltas(newest(replies), service.tokenizer.visible_bytes)
            events = chunk_events(service, body, head, coming, self._chunks, self._note_end)
            return EventStream(await started(self._request, events, patience_s), patience_s)
        head = Head.new("chatcmpl", "chat.completion", service.model_name)
        replies = await unless_gone(self._request, answers(service, [ids], self._params, **self._wanted))
        usage = usage_of(replies, body.n)
        self._note_end(usage, [finish_reason(reply) for reply in replies])
        return json_response(
            head.with_choices([self._choice(i, reply) for i, reply in enumerate(replies)], usage=usage)
        )

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply["text"], "refusal": None}
        logprobs = self._logprobs(reply, 0, len(reply["output_ids"]))
        choice = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(reply)}
        return choice | _notes(reply)

    def _chunks(self, delta: Delta) -> list[dict[str, Any]]:
        def chunk(fields: dict[str, Any], logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
            return {"index": delta.index, "delta": fields, "logprobs": logprobs, "finish_reason": reason}

        chunks: list[dict[str, Any]] = []
        if delta.is_start:
            chunks.append(chunk({"role": "assistant", "content": ""}, None, None))
        logprobs = self._logprobs(delta.reply, delta.first, delta.end)
        if delta.text or (logprobs and logprobs["content"]):
            chunks.append(chunk({"content": delta.text}, logprobs, None))
        if delta.finish_reason is not None:
            chunks.append(chunk({}, None, delta.finish_reason) | _notes(delta.reply))
        return chunks

    def _logprobs(self, reply: Reply, first: int, end: int) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._service.tokenizer, reply["meta_info"], first, end)

    def _note_end(self, usage: dict[str, Any], reasons: list[str | None]) -> None:
        note(self._request.scope, **facts_of(usage, reasons))


def _notes(reply: Reply) -> dict[str, Any]:
    """What a schema that is not strict asks for and the masks did not enforce; not OpenAI's field."""
    notes = reply["meta_info"].get("grammar_notes")
    return {"grammar_notes": notes} if notes else {}


def _check_fields(body: ChatBody) -> None:
    if body.top_logprobs is not None:
        if not body.logprobs:
            raise FieldError(
                "reading the request: top_logprobs without logprobs, expected logprobs=true", "top_logprobs"
            )
        if not 0 <= body.top_logprobs <= MAX_LOGPROBS:
            raise FieldError(
                f"reading the request: top_logprobs={body.top_logprobs}, expected 0 to {MAX_LOGPROBS}", "top_logprobs"
            )
