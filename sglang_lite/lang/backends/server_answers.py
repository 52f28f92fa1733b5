"""What a server's answers mean: their JSON, or the error that its refusal stands for; it knows no route."""

from __future__ import annotations

import json
from typing import Any

from sglang_lite.errors import ContextLengthError, ExecutionError, RequestError, SglangLiteError, UnsupportedError
from sglang_lite.lang.backends.http_client import Answer
from sglang_lite.op_json import error_from_json


def checked(answer: Answer, what: str) -> Any:
    """The JSON of a good answer.

    Raises:
        SglangLiteError: what the server said.
    """
    if answer.status >= 400:
        raise error_of(answer, what)
    return answer.json()


def error_of(answer: Answer, what: str) -> SglangLiteError:
    """What a server's refusal means: 4xx is the request's fault."""
    try:
        told: Any = json.loads(answer.body)["error"]
        message, code, kind = str(told["message"]), told.get("code"), told.get("type")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code, kind = answer.body[:500].decode("utf-8", "replace"), None, None
    message = f"{what}: the server answered {answer.status}: {message}"
    if isinstance(kind, str) and kind.endswith("Error"):
        return error_from_json({"type": kind, "message": message})
    if code == "context_length_exceeded":
        return ContextLengthError(message)
    if code == "unsupported":
        return UnsupportedError(message)
    return RequestError(message) if 400 <= answer.status < 500 else ExecutionError(message)
