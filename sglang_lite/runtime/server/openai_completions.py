"""`/v1/completions`: prompts as text or ids, echo, log-probabilities, streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.errors import FieldError, json_response
from sglang_lite.runtime.server.openai_logprobs import completion_logprobs, text_pieces
from sglang_lite.runtime.server.openai_replies import (
    Delta,
    Head,
    Reply,
    answers,
    chunk_events,
    deltas,
    finish_reason,
    stream_of,
)
from sglang_lite.runtime.server.openai_schemas import CompletionBody
from sglang_lite.runtime.server.service import Service, facts_of, usage_of
from sglang_lite.runtime.server.sse import EventStream, newest, started, unless_gone

DEFAULT_MAX_TOKENS = 16
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: list[int]
    text: str


def completion_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await service.bodies.read(request, CompletionBody)
        return await _Completion(service, request, body, await _prompts(service, body)).respond()

    return router


class _Completion:
    """One request on its way."""

    def __init__(self, service: Service, request: Request, body: CompletionBody, prompts: list[_Prompt]) -> None:
        body.check(service.config.max_n)
        service.check_batch(len(prompts) * body.n)
        _check_fields(body)
        self._service = service
        self._request = request
        self._body = body
        self._prompts = prompts
        self._head = Head.new("cmpl", "text_completion", service.model_name)
        self._params = body.sampling(DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens)
        self._wanted: dict[str, Any] = {"rid": body.rid if len(prompts) == 1 else None, "cache_salt": body.cache_salt}
        if body.logprobs is not None:
            self._wanted |= {"return_logprob": True, "top_logprobs_num": body.logprobs}
            self._wanted["logprob_start_len"] = 0 if body.echo else None

    async def respond(self) -> Response:
        """The answer or its stream."""
        service, ids = self._service, [prompt.ids for prompt in self._prompts]
        if self._body.stream:
            patience_s = service.config.heartbeat_s
            replies = await stream_of(service, ids, self._params, **self._wanted)
            coming = deltas(newest(replies), service.tokenizer.visible_bytes)
            events = chunk_events(service, self._body, self._head, coming, self._chunks, self._note_end)
            return EventStream(await started(self._request, events, patience_s), patience_s)
        replies = await unless_gone(self._request, answers(service, ids, self._params, **self._wanted))
        usage = self._note_end(replies)
        choices = [self._choice(i, reply) for i, reply in enumerate(replies)]
        return json_response(self._head.with_choices(choices, usage=usage))

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        prompt = self._prompts[index // self._body.n]
        text = (prompt.text if self._body.echo else "") + reply["text"]
        logprobs = None
        if self._body.logprobs is not None:
            logprobs = self._logprobs(prompt, reply, 0, len(reply["output_ids"]), with_prompt=self._body.echo)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason(reply)}

    def _chunks(self, delta: Delta) -> list[dict[str, Any]]:
        prompt = self._prompts[delta.index // self._body.n]
        echoes = self._body.echo and delta.is_start
        if not (delta.text or echoes or delta.finish_reason):
            return []
        logprobs = None
        if self._body.logprobs is not None:
            logprobs = self._logprobs(prompt, delta.reply, delta.first, delta.end, with_prompt=echoes)
        text = (prompt.text if echoes else "") + delta.text
        return [{"index": delta.index, "text": text, "logprobs": logprobs, "finish_reason": delta.finish_reason}]

    def _logprobs(self, prompt: _Prompt, reply: Reply, first: int, end: int, *, with_prompt: bool) -> dict[str, Any]:
        tokenizer, meta = self._service.tokenizer, reply["meta_info"]
        pieces = text_pieces(tokenizer, reply["output_ids"][:end], reply["text"], is_visible=True)
        offset = len(prompt.text) if self._body.echo else 0
        offset += sum(map(len, pieces[:first]))
        entries = list(meta["output_token_logprobs"][first:end])
        tops = list(meta["output_top_logprobs"][first:end]) if self._body.logprobs else None
        shown = pieces[first:]
        if with_prompt:
            entries = [*meta["input_token_logprobs"], *entries]
            tops = [*meta["input_top_logprobs"], *tops] if tops is not None else None
            shown = [*text_pieces(tokenizer, prompt.ids, prompt.text), *shown]
            offset = 0
        return completion_logprobs(tokenizer, entries, tops, shown, offset)

    def _note_end(self, replies: list[Reply]) -> dict[str, Any]:
        usage = usage_of(replies, self._body.n)
        note(self._request.scope, **facts_of(usage, [finish_reason(reply) for reply in replies]))
        return usage


def _check_fields(body: CompletionBody) -> None:
    if body.best_of is not None and body.best_of != body.n:
        raise FieldError(
            f"reading the request: best_of={body.best_of}, expected n or nothing: all samples are returned", "best_of"
        )
    if body.logprobs is not None and not 0 <= body.logprobs <= MAX_LOGPROBS:
        raise FieldError(f"reading the request: logprobs={body.logprobs}, expected 0 to {MAX_LOGPROBS}", "logprobs")
    if body.max_tokens is not None and body.max_tokens < 0:
        raise FieldError(f"reading the request: max_tokens={body.max_tokens}, expected at least 0", "max_tokens")


async def _prompts(service: Service, body: CompletionBody) -> list[_Prompt]:
    given = body.prompt
    if isinstance(given, str):
        return [_Prompt(await service.encode(given), given)]
    if not given:
        raise FieldError(
            "reading the request: prompt is an empty list, expected text, ids, or a list of them", "prompt"
        )
    service.check_batch(len(given) if not isinstance(given[0], int) else 1)
    if isinstance(given[0], int):
        return [_of_ids(service, [i for i in given if isinstance(i, int)])]
    prompts: list[_Prompt] = []
    for one in given:
        if isinstance(one, str):
            prompts.append(_Prompt(await service.encode(one), one))
        elif isinstance(one, list):
            prompts.append(_of_ids(service, one))
    return prompts


def _of_ids(service: Service, ids: list[int]) -> _Prompt:
    size = service.tokenizer.vocab_size
    if bad := [i for i in ids if not 0 <= i < size]:
        raise FieldError(f"reading the request: token id {bad[0]}, expected 0 to {size - 1}", "prompt")
    return _Prompt(ids, service.tokenizer.decode(ids, False, at_start=True))
