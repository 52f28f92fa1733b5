"""When a call is made again, how long it waits, and what the last error says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sglang_lite.errors import ContextLengthError, ExecutionError, QueueFullError, RequestError
from sglang_lite.lang.backends.hosted.retry import RetryPolicy, final_error, is_transient, redacted, retry_after
from tests.lang.backends.hosted.support import ApiError


class APIConnectionError(Exception):
    """Named as the clients name it."""


def run(policy: RetryPolicy, errors: list[Exception], may_repeat: bool = True) -> tuple[Any, int]:
    calls = 0

    async def make() -> str:
        nonlocal calls
        calls += 1
        if errors:
            raise errors.pop(0)
        return "ok"

    async def whole() -> Any:
        try:
            return await policy.call(make, lambda: may_repeat)
        except Exception as error:  # noqa: BLE001 - it is the result here
            return error

    return asyncio.run(whole()), calls


def test_waits_double_unless_the_api_says_how_long() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    policy = RetryPolicy(5, 0.5, sleep)
    errors: list[Exception] = [ApiError(500), APIConnectionError("x"), ApiError(429, headers={"retry-after": "3"})]
    errors += [ApiError(503, headers={"retry-after-ms": "250"}), ApiError(429, headers={"retry-after": "Mon, 1 Jan"})]
    assert run(policy, errors) == ("ok", 6)
    assert waits == [0.5, 1.0, 3.0, 0.25, 8.0]
    waits.clear()
    error = ApiError(429, headers={"retry-after": "3600"})
    assert run(policy, [error]) == (error, 1)
    assert waits == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_fault_of_the_caller_is_not_tried_again(status: int) -> None:
    error = ApiError(status)
    assert run(RetryPolicy(), [error]) == (error, 1)


def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    error = ApiError(500)
    assert run(RetryPolicy(), [error], may_repeat=False) == (error, 1)


def test_an_error_of_our_own_is_no_ones_busy_server() -> None:
    assert not is_transient(ExecutionError("x"))
    assert not is_transient(KeyError("x"))
    assert is_transient(APIConnectionError("x"))
    assert retry_after(ValueError("x")) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ApiError(400, "context_length_exceeded"), ContextLengthError),
        (ApiError(400, "prompt is too long: 9 tokens"), ContextLengthError),
        (ApiError(400), RequestError),
        (ApiError(401, "key KEY"), RequestError),
        (ApiError(429), QueueFullError),
        (ApiError(529), ExecutionError),
        (APIConnectionError("no KEY"), ExecutionError),
    ],
)
def test_the_last_error_is_one_of_ours(error: Exception, kind: type[Exception]) -> None:
    found = final_error(error, "Fake", ("KEY",))
    assert type(found) is kind
    assert "KEY" not in str(found)
    assert final_error(found, "Fake", ()) is found


def test_what_looks_like_a_key_goes_as_well() -> None:
    assert redacted("key sk-proj-abcdef123456 of Bearer abcdefgh", ("",)) == "key *** of ***"
    assert redacted("nothing here", ("KEY",)) == "nothing here"
