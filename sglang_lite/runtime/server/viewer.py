"""The page at `/` and what it asks for: files, statistics, records of programs, the playground's tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from sglang_lite.errors import RequestError
from sglang_lite.records.html_view import for_browser
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.chat_prompt import chat_ids
from sglang_lite.runtime.server.errors import HttpError, json_response
from sglang_lite.runtime.server.native import sampling_from
from sglang_lite.runtime.server.recent_programs import RecentPrograms
from sglang_lite.runtime.server.service import Service, facts_of, usage_of
from sglang_lite.runtime.server.sse import DONE, EventStream, event, newest, started
from sglang_lite.runtime.server.viewer_access import ViewerAccess

PAGE_PATHS = frozenset(
    {"/", "/viewer/page.js", "/viewer/page.css", "/viewer/charts.js", "/viewer/tree.js", "/viewer/tree.css"}
)
"""What is served without a key: the page itself, in which nothing of this server's work stands."""

MAX_NODES = 600
"""Nodes of the radix tree that the page is given."""

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Message(Body):
    """One message of the playground's chat."""

    role: str
    content: str


class RunBody(Body):
    """What the playground runs: a text, or messages; `sampling_params` as of `/generate`."""

    text: str | None = None
    messages: list[Message] | None = Field(default=None, min_length=1)
    sampling_params: dict[str, Any] = Field(default_factory=dict)


def viewer_routes(service: Service, access: ViewerAccess, recent: RecentPrograms) -> APIRouter:
    """All routes of the page; none with `--viewer off`."""
    router = APIRouter(include_in_schema=False)
    if access.mode == "off":
        return router
    _add_files(router)
    _add_looks(router, service, access, recent)
    if access.mode == "full":

        @router.post("/viewer/run")
        async def run(request: Request) -> Response:
            access.check(request)
            return await _run(service, request, await service.bodies.read(request, RunBody))

    return router


def _add_files(router: APIRouter) -> None:
    folder = files("sglang_lite") / "view"

    @router.get("/")
    async def page() -> Response:
        return _file("page.html")

    @router.get("/viewer/{name}.{kind}")
    async def file(name: str, kind: str) -> Response:
        if f"/viewer/{name}.{kind}" not in PAGE_PATHS:
            raise HttpError(404, f"the viewer has no file {name}.{kind}"[:200])
        return _file(f"{name}.{kind}")

    def _file(name: str) -> Response:
        text = (folder / name).read_text(encoding="utf-8")
        return Response(text, media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)


def _add_looks(router: APIRouter, service: Service, access: ViewerAccess, recent: RecentPrograms) -> None:
    @router.get("/viewer/about")
    async def about(request: Request) -> Response:
        access.check(request)
        return json_response(
            {
                "model": service.model_name,
                "context_length": service.context_length,
                "mode": access.mode,
                "texts": access.sees_texts(request),
                "has_chat_template": service.tokenizer.chat_template is not None,
            }
        )

    @router.get("/viewer/statistics")
    async def statistics(request: Request) -> Response:
        access.check(request)
        with_texts = access.sees_texts(request)
        seen = await asyncio.to_thread(service.engine.call, "look", max_nodes=MAX_NODES, with_texts=with_texts)
        return json_response(seen)

    @router.get("/viewer/programs")
    async def programs(request: Request) -> Response:
        access.check(request)
        return json_response({"programs": recent.overview()})

    @router.get("/viewer/programs/{name}")
    async def program(name: str, request: Request) -> Response:
        access.check(request)
        record = recent.record(name, with_texts=access.sees_texts(request))
        if record is None:
            raise HttpError(404, f"no record of a program {name!r:.80}: it is too old, or too large", code="no_record")
        return json_response(for_browser(record))


async def _run(service: Service, request: Request, body: RunBody) -> Response:
    params = sampling_from(body.sampling_params)
    if params.n != 1:
        raise RequestError(f"running the playground: n={params.n}, expected 1")
    ids = await _ids(service, body)
    replies = await service.engine.async_generate(
        input_ids=ids, sampling_params=params, stream=True, return_logprob=True, return_text_in_logprobs=True
    )
    patience_s = service.config.heartbeat_s
    events = _token_events(service, request, ids, newest(replies))
    return EventStream(await started(request, events, patience_s), patience_s)


async def _ids(service: Service, body: RunBody) -> list[int]:
    if (body.text is None) == (body.messages is None):
        raise RequestError("running the playground: expected exactly one of text and messages")
    if body.text is not None:
        return await service.encode(body.text)
    messages = [message.model_dump() for message in body.messages or []]
    return await asyncio.to_thread(
        chat_ids, service.tokenizer, service.chat, messages, None, continue_final=False
    )  # a template is foreign code and may take its time


async def _token_events(
    service: Service, request: Request, ids: list[int], replies: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[str, None]:
    """The prompt's tokens, then the output's as they come, at the end the counts."""
    texts = [service.tokenizer.token_bytes[token].decode("utf-8", "replace") for token in ids]
    sent = 0
    last: dict[str, Any] = {}
    try:
        async for reply in replies:
            if not last:
                yield event({"prompt": texts})
            last = reply
            meta = reply["meta_info"]
            entries = meta["output_token_logprobs"]
            kinds = meta.get("output_token_kinds") or ["sampled"] * len(entries)
            new = [
                {"text": text, "logprob": logprob, "kind": kind}
                for (logprob, _, text), kind in zip(entries[sent:], kinds[sent:], strict=False)
            ]
            sent = len(entries)
            if new:
                yield event({"tokens": new})
        usage = usage_of([last])
        service.count(usage)
        reason = last["meta_info"]["finish_reason"] or {}
        note(request.scope, **facts_of(usage, [reason.get("type")]))
        counts = {name: value for name, value in last["meta_info"].items() if not isinstance(value, list)}
        yield event({"end": for_browser(counts), "text": last["text"]})
        yield DONE
    finally:
        await replies.aclose()
