from __future__ import annotations

import pytest

from sglang_lite.errors import ContextLengthError, RequestError, SglangLiteError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.messages import AddReq
from tests.support.scheduler_harness import Harness, config, greedy


def refused(add: AddReq, **pool: int) -> SglangLiteError:
    """The error of the request's one terminal message; another request beside it is served."""
    harness = Harness(config(context_length=40), **pool)  # type: ignore[arg-type]
    harness.drain(add, AddReq("other", (2, 3), greedy()))
    harness.check_idle()
    final = harness.finals[add.rid]
    assert final.reason is not None
    assert final.reason.kind == "abort"
    assert final.usage is not None
    assert final.usage.prompt_tokens == len(add.input_ids)
    assert final.error is not None
    return final.error


@pytest.mark.parametrize(
    ("add", "words"),
    [
        (AddReq("r", (2,) * 40, greedy()), "got 40 prompt tokens .* the context holds 40"),
        (AddReq("r", (2,) * 41, greedy(0)), "got 41 prompt tokens"),
        (AddReq("r", (2,) * 39, greedy(), choices=((2, 3),)), "at least 2 after them"),
    ],
)
def test_a_prompt_beyond_the_context_is_refused(add: AddReq, words: str) -> None:
    error = refused(add)
    assert isinstance(error, ContextLengthError)
    with pytest.raises(ContextLengthError, match=words):
        raise error


def test_a_prompt_beyond_the_pool_is_refused() -> None:
    error = refused(AddReq("r", (2,) * 17, greedy()), num_pages=5)
    assert isinstance(error, ContextLengthError)
    assert "whole pool has 16 slots" in str(error)
    assert isinstance(
        refused(AddReq("r", (2,) * 14, greedy(), choices=((2, 3, 4, 5),)), num_pages=5), ContextLengthError
    )


@pytest.mark.parametrize(
    "add", [AddReq("r", (2,) * 16, greedy(1)), AddReq("r", (2,) * 12, greedy(), choices=((2, 3),))]
)
def test_what_just_fits_the_pool_is_served(add: AddReq) -> None:
    harness = Harness(num_pages=5)
    harness.drain(add)
    assert harness.finals["r"].error is None
    harness.check_idle()


@pytest.mark.parametrize("size", [39, 40])
def test_what_just_fits_the_context_is_served(size: int) -> None:
    harness = Harness(config(context_length=40))
    harness.drain(AddReq("r", (2,) * size, greedy(40 - size)))
    harness.check_idle()
    assert len(harness.finals["r"].ids) == 40 - size


@pytest.mark.parametrize(
    ("add", "words"),
    [
        (AddReq("r", (), greedy()), "no input ids"),
        (AddReq("r", (2, 99), greedy()), "token id 99, expected 0 to 11"),
        (AddReq("r", (-1,), greedy()), "token id -1"),
        (AddReq("r", (2,), greedy(), choices=()), "expected at least one"),
        (AddReq("r", (2,), greedy(), choices=((2,), ())), "at least one token"),
        (AddReq("r", (2,), greedy(), choices=((2, 50),)), "token id 50"),
        (AddReq("r", (2,), greedy(stop_regex=("(",))), r"stop_regex '\(' is no regular expression"),
        (AddReq("r", (2,), greedy(stop=("\ud800",))), "is no text"),
        (AddReq("r", (2,), greedy(), logprob=LogprobParams(start_len=-1)), "at -1"),
    ],
)
def test_a_malformed_request_is_refused_with_a_reason(add: AddReq, words: str) -> None:
    harness = Harness()
    harness.drain(add)
    error = harness.finals["r"].error
    assert isinstance(error, RequestError)
    with pytest.raises(RequestError, match=words):
        raise error
