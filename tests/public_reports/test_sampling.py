"""Public reports about sampling parameters and limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.engine.engine import Engine

pytestmark = pytest.mark.model

PROMPT = "Once upon a time"


def greedy(count: int, **more: Any) -> dict[str, Any]:
    return {"temperature": 0, "max_new_tokens": count, "ignore_eos": True} | more


@pytest.mark.parametrize("start", [None, 0])
def test_scoring_without_new_tokens_works(engine: Engine, start: int | None) -> None:
    """C29: zero new tokens with log-probabilities of the prompt is the usual scoring call."""
    params = {"temperature": 0, "max_new_tokens": 0}
    reply = engine.generate("Your answer: Yes", params, return_logprob=True, logprob_start_len=start)
    assert isinstance(reply, dict)
    assert (reply["text"], reply["meta_info"]["completion_tokens"]) == ("", 0)
    assert len(reply["meta_info"].get("input_token_logprobs", [])) == (
        0 if start is None else reply["meta_info"]["prompt_tokens"]
    )


@pytest.mark.parametrize("limit", [-1, 1.5, "5", True])
def test_a_limit_that_is_no_count_is_refused(engine: Engine, limit: object) -> None:
    """C29: and no limit, or one beyond the context, ends by the context or the end token."""
    with pytest.raises(RequestError, match="max_new_tokens="):
        engine.generate(PROMPT, {"max_new_tokens": limit})


@pytest.mark.parametrize("limit", [None, 10**9])
def test_a_limit_beyond_the_context_is_the_context(engine: Engine, limit: int | None) -> None:
    """C29: the grammar ends it here, long before."""
    reply = engine.generate(PROMPT, {"max_new_tokens": limit, "regex": "ab", "temperature": 0})
    assert isinstance(reply, dict)
    assert reply["text"] == "ab"


@pytest.mark.parametrize(
    "bias", [{"999999": -100}, {"-1": 5}, {"AI": -100}, {"5": "x"}, {"5": 1e9}, {"5": None}, {5: True}, {1.5: 1}]
)
def test_a_wrong_bias_harms_nobody(engine: Engine, bias: dict[Any, Any]) -> None:
    """C31: an id outside the vocabulary, a key that is no id, a value that is no bias."""
    alone = engine.generate(PROMPT, greedy(4))
    with pytest.raises(RequestError, match="logit_bias"):
        engine.generate([PROMPT, PROMPT], [greedy(4), greedy(4, logit_bias=bias)])
    assert isinstance(alone, dict)
    after = engine.generate(PROMPT, greedy(4))
    assert isinstance(after, dict)
    assert after["output_ids"] == alone["output_ids"]


def test_a_bias_forbids_or_forces_a_token(engine: Engine) -> None:
    """C31: the good one."""
    token_id = engine.tokenizer.encode(" the", parse_special=False)[0]
    plain, without, only = (
        engine.generate(PROMPT, greedy(24, logit_bias=bias)) for bias in ({}, {str(token_id): -100}, {token_id: 100})
    )
    assert token_id in plain["output_ids"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert token_id not in without["output_ids"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert set(only["output_ids"]) == {token_id}  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("penalty", [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 1.5}])
def test_a_penalty_is_applied(engine: Engine, penalty: dict[str, float]) -> None:
    """C35: the text changes, and nothing is said more often than without it."""

    def most(params: dict[str, Any]) -> tuple[list[int], int]:
        ids = engine.generate("banana banana banana banana banana", params)["output_ids"]  # pyright: ignore[reportCallIssue, reportArgumentType]
        return ids, Counter(ids).most_common(1)[0][1]

    (plain, plain_most), (ids, ids_most) = most(greedy(20)), most(greedy(20, **penalty))
    assert ids != plain
    assert ids_most <= plain_most


@pytest.mark.parametrize("penalty", [{"frequency_penalty": 2.1}, {"presence_penalty": -3}, {"repetition_penalty": 0}])
def test_a_penalty_outside_its_range_is_refused(engine: Engine, penalty: dict[str, float]) -> None:
    """C35: silence would hide that it does nothing."""
    with pytest.raises(RequestError, match="_penalty="):
        engine.generate(PROMPT, greedy(4, **penalty))
