from __future__ import annotations

import json

import pytest

from sglang_lite import errors
from sglang_lite.runtime.server.errors import ClientGoneError, FieldError, HttpError, dump, error_body, status_of


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.RequestError("x"), 400, None),
        (errors.UnsupportedError("x"), 400, "unsupported"),
        (errors.ContextLengthError("x"), 400, "context_length_exceeded"),
        (errors.GrammarError("x"), 400, None),
        (errors.DeadEndError("x"), 500, "DeadEndError"),
        (errors.KvOutOfMemoryError("x"), 503, "KvOutOfMemoryError"),
        (errors.EngineStoppedError("x"), 503, "EngineStoppedError"),
        (errors.QueueFullError("x"), 503, "QueueFullError"),
        (HttpError(409, "x", code="c"), 409, "c"),
        (ClientGoneError(), 499, None),
        (KeyError("secret"), 500, None),
    ],
)
def test_every_error_has_a_status_and_a_code(error: Exception, status: int, code: str | None) -> None:
    assert status_of(error) == status
    body = error_body(error, is_openai=True)["error"]
    assert body["code"] == code
    assert body["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert "secret" not in body["message"]


def test_native_errors_name_their_kind() -> None:
    assert error_body(errors.GrammarError("why"), is_openai=False) == {
        "error": {"message": "why", "type": "GrammarError", "code": 400}
    }


def test_a_wrong_field_is_named() -> None:
    assert error_body(FieldError("why", "messages.0"), is_openai=True)["error"]["param"] == "messages.0"


def test_numbers_that_json_does_not_have_are_replaced() -> None:
    text = dump({"a": [float("-inf"), 1.5], "b": float("nan")})
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {"a": [-9999.0, 1.5], "b": 9999.0}
