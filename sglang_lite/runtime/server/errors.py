"""From errors to HTTP: a status and a JSON body, in OpenAI's shape below /v1 and a shorter one elsewhere."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from sglang_lite.errors import (
    CancelledError,
    ContextLengthError,
    EngineStoppedError,
    ExecutionError,
    KvOutOfMemoryError,
    QueueFullError,
    RequestError,
    SglangLiteError,
    UnsupportedError,
)
from sglang_lite.op_json import finite

CLIENT_GONE = 499
"""The status in the log of a request whose client went away; nobody receives it."""


_ANTHROPIC_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class HttpError(Exception):
    """A refusal that is about HTTP or the server rather than the engine."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}


class ClientGoneError(Exception):
    """The client closed its connection before the answer."""


class FieldError(RequestError):
    """A request field has a wrong value; `param` is its path."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Compact JSON; numbers that JSON does not have are replaced."""
    return Response(dump(content), status_code=status, headers=headers, media_type="application/json")


def dump(content: Any) -> str:
    """One line of JSON."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def validation_error(error: ValidationError) -> FieldError:
    """The first wrong field of a request body, by its path; values are not repeated, they may be long or secret."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "body"
    got = first.get("input")
    shown = f", got {type(got).__name__}" if first["type"] not in ("missing", "extra_forbidden") else ""
    return FieldError(f"reading the request: {path}: {first['msg']}{shown}", path)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    match error:
        case HttpError():
            return error.status
        case ClientGoneError():
            return CLIENT_GONE
        case RequestError():
            return 400
        case KvOutOfMemoryError() | QueueFullError() | EngineStoppedError():
            return 503
        case _:
            return 500


def error_body(error: Exception, *, is_openai: bool) -> dict[str, Any]:
    """The JSON body that tells a client about `error`."""
    status = status_of(error)
    message = (
        str(error) if isinstance(error, SglangLiteError | HttpError) else "an internal error; the server's log has it"
    )
    if not is_openai:
        kind = (
            type(error).__name__
            if isinstance(error, SglangLiteError) and not isinstance(error, FieldError)
            else _kind(status)
        )
        return {"error": {"message": message, "type": kind, "code": status}}
    param = error.param if isinstance(error, HttpError | FieldError) else None
    return {"error": {"message": message, "type": _kind(status), "param": param, "code": _code(error)}}


def body_for(error: Exception, path: str) -> dict[str, Any]:
    """The JSON body that tells a client of `path` about `error`, in the shape that its API has."""
    body = error_body(error, is_openai=is_openai_path(path))
    if not is_anthropic_path(path):
        return body
    status = status_of(error)
    kind = _ANTHROPIC_KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": body["error"]["message"]}}


def is_anthropic_path(path: str) -> bool:
    """Routes of Anthropic's API answer in its shape."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


_NOT_OFFERED = {
    "/encode": "embeddings are",
    "/v1/embeddings": "embeddings are",
    "/v1/rerank": "reranking is",
    "/classify": "classification is",
    "/v1/moderations": "moderation is",
    "/v1/images/generations": "making images is",
    "/v1/audio/speech": "speech is",
    "/v1/audio/transcriptions": "transcription is",
    "/v1/files": "uploading files is",
    "/v1/batches": "a batch of files is",
}
"""Routes that clients of other servers look for, and what they would do."""


def respond(error: Exception, request: Request) -> Response:
    """The response that tells the client of `request` about `error`."""
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, HttpError) else {}
    if status == 503:
        headers.setdefault("Retry-After", "1")
    return json_response(body_for(error, request.url.path), status, headers)


def is_openai_path(path: str) -> bool:
    """Routes below /v1 answer in OpenAI's shape."""
    return path.startswith("/v1/") or path == "/v1"


def install_handlers(app: FastAPI) -> None:
    """Answer every error of a route in JSON."""

    async def on_known(request: Request, error: Exception) -> Response:
        return respond(error, request)

    async def on_unknown(request: Request, error: Exception) -> Response:
        return respond(error, request)  # the framework raises it again, and the access log writes it down

    async def no_route(request: Request, error: Exception) -> Response:
        if (what := _NOT_OFFERED.get(request.url.path)) is not None:
            return respond(UnsupportedError(f"{what} not supported: this server generates text"), request)
        return respond(
            HttpError(404, f"no route {request.method} {request.url.path}; see docs/server.md", code="not_found"),
            request,
        )

    async def wrong_method(request: Request, error: Exception) -> Response:
        allowed = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        return respond(HttpError(405, f"{request.url.path} does not take {request.method}", headers=allowed), request)

    for kind in (SglangLiteError, HttpError, ClientGoneError):
        app.add_exception_handler(kind, on_known)
    app.add_exception_handler(404, no_route)
    app.add_exception_handler(405, wrong_method)
    app.add_exception_handler(Exception, on_unknown)


def _kind(status: int) -> str:
    if status == 401:
        return "authentication_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _code(error: Exception) -> str | None:
    match error:
        case HttpError():
            return error.code
        case ContextLengthError():
            return "context_length_exceeded"
        case UnsupportedError():
            return "unsupported"
        case CancelledError():
            return "cancelled"
        case ExecutionError():
            return type(error).__name__
        case _:
            return None
