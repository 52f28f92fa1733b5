"""What a server's refusals mean to a program."""

from __future__ import annotations

import json

import pytest

from sglang_lite.errors import (
    ContextLengthError,
    ExecutionError,
    GrammarError,
    RequestError,
    SglangLiteError,
    UnsupportedError,
)
from sglang_lite.lang.backends.http_client import Answer
from sglang_lite.lang.backends.server_answers import checked, error_of


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "m", "type": "GrammarError"}, GrammarError),
        (400, {"message": "m", "code": "context_length_exceeded"}, ContextLengthError),
        (400, {"message": "m", "code": "unsupported"}, UnsupportedError),
        (404, {"message": "m"}, RequestError),
        (500, {"message": "m"}, ExecutionError),
    ],
)
def test_an_error_has_the_type_that_the_server_named(
    status: int, error: dict[str, str], kind: type[SglangLiteError]
) -> None:
    found = error_of(Answer(status, {}, json.dumps({"error": error}).encode()), "asking")
    assert type(found) is kind
    assert str(found) == f"asking: the server answered {status}: m"


def test_an_answer_that_is_no_json_is_shown_as_it_is() -> None:
    with pytest.raises(ExecutionError, match="asking: the server answered 502: <html>bad gateway"):
        checked(Answer(502, {}, b"<html>bad gateway"), "asking")
    assert checked(Answer(200, {}, b"[1]"), "asking") == [1]
