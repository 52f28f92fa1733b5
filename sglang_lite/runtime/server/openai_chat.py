"""`/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.answer_reader import AnswerReader, Part, ToolCall
from sglang_lite.runtime.server.chat_run import ChatRun, read_whole, reason_of
from sglang_lite.runtime.server.errors import FieldError, HttpError, json_response
from sglang_lite.runtime.server.openai_logprobs import chat_logprobs
from sglang_lite.runtime.server.openai_replies import Delta, Head, Reply, chunk_events, finish_reason
from sglang_lite.runtime.server.openai_schemas import ChatBody
from sglang_lite.runtime.server.service import Service, facts_of
from sglang_lite.runtime.server.sse import EventStream, started

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
        _check_fields(body)
        return await _Chat(request, await ChatRun.of(service, body)).respond()

    return router


class _Chat:
    """One request on its way."""

    def __init__(self, request: Request, run: ChatRun) -> None:
        self._service = run.service
        self._request = request
        self._body = run.body
        self._run = run
        self._readers: dict[int, AnswerReader] = {}

    async def respond(self) -> Response:
        """The answer or its stream."""
        service, body = self._service, self._body
        if body.stream:
            patience_s = service.config.heartbeat_s
            head = Head.new("chatcmpl", "chat.completion.chunk", service.model_name)
            coming = await self._run.coming()
            events = chunk_events(service, body, head, coming, self._chunks, self._note_end)
            return EventStream(await started(self._request, events, patience_s), patience_s)
        head = Head.new("chatcmpl", "chat.completion", service.model_name)
        replies = await self._run.replies(self._request)
        choices = [self._choice(i, reply) for i, reply in enumerate(replies)]
        return json_response(head.with_choices(choices, usage=self._note_end(replies)))

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        reader = self._readers[index] = self._run.reader()
        reason = read_whole(reader, reply)
        answer = reader.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": [_whole_call(call) for call in answer.calls]}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        logprobs = self._logprobs(reply, 0, len(reply["output_ids"]))
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason} | _notes(reply)

    def _chunks(self, delta: Delta) -> list[dict[str, Any]]:
        reader = self._readers.setdefault(delta.index, self._run.reader())
        parts = reader.feed(delta.reply["text"], is_end=delta.finish_reason is not None)
        logprobs = self._logprobs(delta.reply, delta.first, delta.end)

        def chunk(fields: dict[str, Any], logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
            return {"index": delta.index, "delta": fields, "logprobs": logprobs, "finish_reason": reason}

        chunks: list[dict[str, Any]] = []
        if delta.is_start:
            chunks.append(chunk({"role": "assistant", "content": ""}, None, None))
        fields = [_delta_of(part) for part in parts]
        if not fields and logprobs and logprobs["content"]:
            fields = [{"content": ""}]
        chunks += [chunk(one, None if number else logprobs, None) for number, one in enumerate(fields)]
        if delta.finish_reason is not None:
            chunks.append(chunk({}, None, reason_of(reader, delta.finish_reason)) | _notes(delta.reply))
        return chunks

    def _logprobs(self, reply: Reply, first: int, end: int) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._service.tokenizer, reply["meta_info"], first, end)

    def _note_end(self, replies: list[Reply]) -> dict[str, Any]:
        usage = self._run.usage(replies)
        reasons = [reason_of(self._readers[i], finish_reason(reply)) for i, reply in enumerate(replies)]
        note(self._request.scope, **facts_of(usage, reasons))
        return usage


def _whole_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _delta_of(part: Part) -> dict[str, Any]:
    match part.kind:
        case "thinking":
            return {"reasoning_content": part.text}
        case "text":
            return {"content": part.text}
        case "call":
            function = {"name": part.text, "arguments": ""}
            call = {"index": part.index, "id": part.call_id, "type": "function", "function": function}
        case "arguments":
            call = {"index": part.index, "function": {"arguments": part.text}}
    return {"tool_calls": [call]}


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
