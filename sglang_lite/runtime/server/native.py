"""The native routes, as SGLang's: generation, aborting, the cache, information, tokenizing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.auth import IS_ADMIN, not_admin
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import HttpError, json_response
from sglang_lite.runtime.server.service import Service, facts_of, usage_of
from sglang_lite.runtime.server.sse import DONE, EventStream, event, newest, started, unless_gone

Ids = list[int]

# Fields of SGLang's request that this server cannot serve; null and false are taken.
UNSUPPORTED_FIELDS = (
    "audio_data",
    "custom_logit_processor",
    "image_data",
    "input_embeds",
    "lora_path",
    "return_hidden_states",
    "session_params",
    "video_data",
)
# Fields that tune what does not exist here.
WITHOUT_EFFECT_FIELDS = (
    "background",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "log_metrics",
    "modalities",
)


class GenerateBody(Body):
    """The body of `/generate`."""

    text: str | list[str] | None = None
    input_ids: Ids | list[Ids] | None = None
    sampling_params: dict[str, Any] | list[dict[str, Any]] | None = None
    rid: str | list[str] | None = None
    return_logprob: bool = False
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    token_ids_logprob: Ids | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    audio_data: Any = None
    custom_logit_processor: Any = None
    image_data: Any = None
    input_embeds: Any = None
    lora_path: Any = None
    return_hidden_states: Any = None
    session_params: Any = None
    video_data: Any = None
    background: Any = None
    bootstrap_host: Any = None
    bootstrap_port: Any = None
    bootstrap_room: Any = None
    log_metrics: Any = None
    modalities: Any = None


class AbortBody(Body):
    """The body of `/abort_request`."""

    rid: str = ""
    abort_all: bool = False


class TokenizeBody(Body):
    """The body of `/tokenize`; SGLang's field is `prompt`."""

    prompt: str | list[str] | None = None
    text: str | list[str] | None = None
    add_special_tokens: bool = True
    model: str | None = None


class DetokenizeBody(Body):
    """The body of `/detokenize`."""

    tokens: Ids | list[Ids]
    skip_special_tokens: bool = True
    model: str | None = None


def native_routes(service: Service) -> APIRouter:
    """All native routes."""
    router = APIRouter()

    @router.post("/generate")
    async def generate(request: Request) -> Response:
        return await _generate(service, request, await service.bodies.read(request, GenerateBody))

    @router.post("/abort_request")
    async def abort_request(request: Request) -> Response:
        return await _abort(service, request, await service.bodies.read(request, AbortBody))

    @router.get("/flush_cache")
    @router.post("/flush_cache")
    async def flush_cache(request: Request) -> Response:
        is_flushed = await asyncio.to_thread(service.engine.flush_cache)
        if not is_flushed:
            raise HttpError(400, "the cache was not flushed: requests run or wait; try again when they are done")
        return json_response({"success": True, "message": "the cache is empty"})

    @router.get("/get_model_info")
    @router.get("/model_info")
    async def get_model_info() -> Response:
        return json_response(model_info(service))

    @router.get("/get_server_info")
    @router.get("/server_info")
    async def get_server_info() -> Response:
        info = await asyncio.to_thread(service.engine.get_server_info)
        return json_response(info | {"served_model_name": service.model_name, "status": service.phase})

    @router.get("/health_generate")
    async def health_generate(request: Request) -> Response:
        first = min(service.tokenizer.eos_ids, default=0)
        await unless_gone(
            request,
            service.engine.async_generate(input_ids=[first], sampling_params={"max_new_tokens": 1, "temperature": 0}),
        )
        return Response()

    @router.post("/tokenize")
    @router.post("/v1/tokenize")
    async def tokenize(request: Request) -> Response:
        return await _tokenize(service, await service.bodies.read(request, TokenizeBody))

    @router.post("/detokenize")
    @router.post("/v1/detokenize")
    async def detokenize(request: Request) -> Response:
        return _detokenize(service, await service.bodies.read(request, DetokenizeBody))

    return router


def model_info(service: Service) -> dict[str, Any]:
    """What a client may want to know of the model."""
    return {
        "model_path": service.model_path,
        "tokenizer_path": service.model_path,
        "served_model_name": service.model_name,
        "is_generation": True,
        "context_length": service.context_length,
        "vocab_size": service.tokenizer.vocab_size,
        "preferred_sampling_params": None,
        "has_chat_template": service.tokenizer.chat_template is not None,
        "chat_format": service.chat.format.to_json(),
        "programs": True,
    }


def sampling_from(values: Mapping[str, Any] | None) -> SamplingParams:
    """Sampling parameters of a body.

    Raises:
        RequestError: an unknown name or a wrong value, also of a kind that no rule of it expects.
    """
    try:
        return SamplingParams.from_mapping(values)
    except (TypeError, AttributeError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"reading sampling parameters: {error}") from error


async def _generate(service: Service, request: Request, body: GenerateBody) -> Response:
    for name in UNSUPPORTED_FIELDS:
        if getattr(body, name) not in (None, False, []):
            raise UnsupportedError(f"generating: the field {name} is not supported; give text or input_ids")
    params = body.sampling_params
    samplings = [sampling_from(one) for one in params] if isinstance(params, list) else sampling_from(params)
    _check_size(service, body, samplings)
    prompt = await _prompt(service, body)
    replies = service.engine.async_generate(
        **prompt,
        sampling_params=samplings,
        return_logprob=body.return_logprob,
        logprob_start_len=body.logprob_start_len,
        top_logprobs_num=body.top_logprobs_num,
        token_ids_logprob=body.token_ids_logprob,
        return_text_in_logprobs=body.return_text_in_logprobs,
        rid=body.rid,
        stream=body.stream,
    )
    if body.stream:
        events = _events(service, request, newest(await replies))
        patience_s = service.config.heartbeat_s
        return EventStream(await started(request, events, patience_s), patience_s)
    answer = await unless_gone(request, replies)
    _note_end(service, request, answer if isinstance(answer, list) else [answer])
    return json_response(answer)


async def _abort(service: Service, request: Request, body: AbortBody) -> Response:
    if body.abort_all:
        if not request.scope.get(IS_ADMIN):
            raise not_admin()
        count = await asyncio.to_thread(service.engine.call, "abort_running")
        return json_response({"aborted": count})
    if not body.rid:
        raise RequestError("aborting: the rid is empty, expected the id of a request")
    service.engine.abort(body.rid)
    return json_response({"rid": body.rid})


def _check_size(service: Service, body: GenerateBody, samplings: SamplingParams | list[SamplingParams]) -> None:
    count = len(body.text) if isinstance(body.text, list) else 1
    if body.input_ids and isinstance(body.input_ids[0], list):
        count = len(body.input_ids)
    for sampling in samplings if isinstance(samplings, list) else [samplings]:
        if sampling.n > service.config.max_n:
            raise RequestError(f"generating: n={sampling.n}, expected at most {service.config.max_n}")
    largest = max((s.n for s in samplings), default=1) if isinstance(samplings, list) else samplings.n
    service.check_batch(count * largest)


async def _prompt(service: Service, body: GenerateBody) -> dict[str, Any]:
    """The engine's prompt arguments, long texts tokenised beside the event loop."""
    if body.input_ids is not None:
        return {"prompt": body.text, "input_ids": body.input_ids}
    if isinstance(body.text, str) and body.text:
        return {"input_ids": await service.encode(body.text)}
    if isinstance(body.text, list) and body.text and all(body.text):
        return {"input_ids": [await service.encode(text) for text in body.text]}
    return {"prompt": body.text}


async def _events(
    service: Service, request: Request, replies: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[str, None]:
    last: dict[int, dict[str, Any]] = {}
    try:
        async for reply in replies:
            last[reply.get("index", 0)] = reply
            yield event(reply)
        _note_end(service, request, list(last.values()))
        yield DONE
    finally:
        await replies.aclose()


def _note_end(service: Service, request: Request, replies: list[dict[str, Any]]) -> None:
    usage = usage_of(replies)
    service.count(usage)
    reasons = [(reply["meta_info"]["finish_reason"] or {}).get("type") for reply in replies]
    note(request.scope, **facts_of(usage, reasons))


async def _tokenize(service: Service, body: TokenizeBody) -> Response:
    if (body.prompt is None) == (body.text is None):
        raise RequestError("tokenizing: expected exactly one of prompt and text")
    given = body.prompt if body.prompt is not None else body.text
    texts = given if isinstance(given, list) else [given or ""]
    service.check_batch(len(texts))
    ids = [await service.encode(text, add_bos=body.add_special_tokens) for text in texts]
    is_list = isinstance(given, list)
    counts = [len(one) for one in ids]
    return json_response(
        {
            "tokens": ids if is_list else ids[0],
            "count": counts if is_list else counts[0],
            "max_model_len": service.context_length,
        }
    )


def _detokenize(service: Service, body: DetokenizeBody) -> Response:
    tokens = body.tokens
    is_list = bool(tokens) and isinstance(tokens[0], list)
    lists: list[Ids] = (
        [one for one in tokens if isinstance(one, list)] if is_list else [[t for t in tokens if isinstance(t, int)]]
    )
    service.check_batch(len(lists))
    size = service.tokenizer.vocab_size
    for ids in lists:
        if bad := [i for i in ids if not 0 <= i < size]:
            raise RequestError(f"detokenizing: token id {bad[0]}, expected 0 to {size - 1}")
    texts = [service.tokenizer.decode(ids, body.skip_special_tokens, at_start=True) for ids in lists]
    return json_response({"text": texts if is_list else texts[0]})
