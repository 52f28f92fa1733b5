"""`/openapi.json`: the routes with their bodies, which the framework does not see since they are read with bounds of our own."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from sglang_lite.runtime.server.anthropic_input import CountBody, MessagesBody
from sglang_lite.runtime.server.native import AbortBody, DetokenizeBody, GenerateBody, TokenizeBody
from sglang_lite.runtime.server.openai_schemas import ChatBody, CompletionBody
from sglang_lite.runtime.server.program_routes import AppendBody, CancelBody, CheckBody, OpenBody
from sglang_lite.runtime.server.responses_input import ResponsesBody
from sglang_lite.runtime.server.scoring import ScoreBody

Json = dict[str, Any]

BODIES: dict[str, type[BaseModel]] = {
    "/generate": GenerateBody,
    "/abort_request": AbortBody,
    "/tokenize": TokenizeBody,
    "/v1/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
    "/v1/detokenize": DetokenizeBody,
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/v1/score": ScoreBody,
    "/v1/programs": OpenBody,
    "/v1/programs/check": CheckBody,
    "/v1/programs/{name}/ops": AppendBody,
    "/v1/programs/{name}/cancel": CancelBody,
}
"""The body of each POST route that takes one."""

WITHOUT_BODY = ("/flush_cache", "/start_profile", "/stop_profile")
"""POST routes that take none, or may be sent without."""

STREAMS = frozenset(
    {"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/programs"}
)
"""Routes that answer with events where the body has `stream`."""

_REF = "#/components/schemas/{model}"
_ERROR: Json = {
    "description": "What is wrong, and what is allowed.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_ERROR_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}


def install(api: FastAPI) -> None:
    """Give `api` its document; it is made at the first request for it."""

    def document() -> Json:
        if not api.openapi_schema:
            api.openapi_schema = _document(api)
        return api.openapi_schema

    api.openapi = document  # type: ignore[method-assign]


def _document(api: FastAPI) -> Json:
    found: Json = get_openapi(title=api.title, version="1", routes=api.routes)
    schemas: Json = {"Error": _ERROR_SCHEMA}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            model = BODIES.get(path) if method == "post" else None
            responses: Json = operation["responses"]
            responses.pop("422", None)
            responses |= {"4XX": _ERROR, "5XX": _ERROR}
            if model is not None:
                _add(schemas, model)
                schema = {"$ref": _REF.format(model=model.__name__)}
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            if path in STREAMS and method == "post":
                responses["200"]["content"] = {"application/json": {}, "text/event-stream": {}}
            if path == "/v1/programs":
                responses["201"] = {"description": "The program runs.", "content": responses["200"]["content"]}
    found.setdefault("components", {})["schemas"] = schemas
    return found


def _add(schemas: Json, model: type[BaseModel]) -> None:
    schema = model.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema
