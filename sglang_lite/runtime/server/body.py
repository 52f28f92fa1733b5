"""Request bodies: bounded, in time, strict JSON into a checked model; it knows no route."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.errors import ClientGoneError, HttpError, validation_error

_MAX_DEPTH = 64
"""Nesting of a body; schemas and messages need a dozen levels."""


class Body(BaseModel):
    """A request body: values are taken as they are (no `"5"` for 5), unknown fields are refused by name."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


BodyT = TypeVar("BodyT", bound=Body)


class BodyReader:
    """Reads and checks the bodies of one server."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    async def read(self, request: Request, model: type[BodyT]) -> BodyT:
        """The body of `request` as a `model`.

        Raises:
            HttpError: too large, too slow, no JSON by its Content-Type.
            RequestError: no JSON by its content, or a wrong field, named.
        """
        _check_headers(request)
        raw = await self._bytes(request)
        data = parse_json(raw)
        if not isinstance(data, dict):
            raise RequestError(f"reading the request: the body is a JSON {type(data).__name__}, expected an object")
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            raise validation_error(error) from None

    async def _bytes(self, request: Request) -> bytes:
        limit = self._config.max_body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                return await _gather(request, limit)
        except TimeoutError:
            raise HttpError(
                408,
                f"the body did not come within {self._config.body_timeout_s:g} s; send it faster or in parts",
                headers={"connection": "close"},
            ) from None


async def _gather(request: Request, limit: int) -> bytes:
    """The body's bytes; the ASGI messages are read here, since the framework has no bound."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def parse_json(raw: bytes) -> Any:
    """Strict JSON: UTF-8 without a byte order mark, no NaN, no nesting beyond reason.

    Raises:
        RequestError: says what is wrong and where.
    """
    if not raw.strip():
        raise RequestError("reading the request: the body is empty, expected a JSON object")
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RequestError(f"reading the request: byte {error.start} is not UTF-8, expected JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"reading the request: no JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(data)
    return data


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise _too_deep()


def _check_headers(request: Request) -> None:
    """A page of another site can send a form or plain text without asking; it cannot send this type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, f"the body is {kind or 'of no type'}, expected -H 'Content-Type: application/json'")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(415, "compressed bodies are not taken; send the JSON as it is")


def _no_constant(name: str) -> float:
    raise json.JSONDecodeError(f"{name} is not a JSON number", name, 0)


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"the body is larger than {limit} bytes; send less or raise max_body_bytes",
        headers={"connection": "close"},
    )


def _too_deep() -> RequestError:
    return RequestError(f"reading the request: nested deeper than {_MAX_DEPTH} levels; send flatter JSON")
