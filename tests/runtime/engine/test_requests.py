from __future__ import annotations

import pytest

from sglang_lite.errors import ContextLengthError, RequestError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.requests import GenerateRequest, Limits, build_requests, logprob_params
from tests.support.toy_text import END, START, VOCAB_SIZE, toy_tokenizer

LIMITS = Limits(vocab_size=VOCAB_SIZE, context_length=20, pool_tokens=16)
TOKENIZER = toy_tokenizer()


def build(**given: object) -> tuple[list[GenerateRequest], bool]:
    arguments = {"prompt": None, "input_ids": None, "params": None, "logprob": None, "rid": None} | given
    return build_requests(TOKENIZER, LIMITS, **arguments)  # pyright: ignore[reportArgumentType]


def test_one_prompt_is_one_request_and_a_list_stays_a_list() -> None:
    (request,), is_single = build(prompt="ab")
    assert (request.input_ids, is_single) == ((97, 98), True)
    requests, is_single = build(prompt=["ab"])
    assert (len(requests), is_single) == (1, False)
    requests, is_single = build(input_ids=[[1], [2, 3]])
    assert ([r.input_ids for r in requests], is_single) == ([(1,), (2, 3)], False)


def test_special_tokens_in_a_prompt_are_parsed_and_bos_comes_once() -> None:
    assert build(prompt="a<|im_end|>")[0][0].input_ids == (97, END)
    tokenizer = toy_tokenizer(add_bos=True)
    for prompt in ("a", "<|im_start|>a"):
        ((request,), _) = build_requests(tokenizer, LIMITS, prompt, None, None, None, None)
        assert request.input_ids == (START, 97)


def test_parameters_are_one_for_all_or_one_each() -> None:
    requests, _ = build(prompt=["a", "b"], params={"temperature": 0})
    assert [r.sampling.temperature for r in requests] == [0, 0]
    requests, _ = build(prompt=["a", "b"], params=[{"temperature": 0}, SamplingParams(temperature=1.0)])
    assert [r.sampling.temperature for r in requests] == [0, 1.0]
    with pytest.raises(RequestError, match="1 for 2 prompts"):
        build(prompt=["a", "b"], params=[{}])


def test_n_samples_are_requests_of_their_own_with_seeds_in_a_row() -> None:
    requests, is_single = build(prompt="a", params={"n": 3, "seed": 5}, rid="mine")
    assert not is_single
    assert [r.sampling.seed for r in requests] == [5, 6, 7]
    assert [r.rid for r in requests] == ["mine-0", "mine-1", "mine-2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of prompt and input_ids"),
        ({"prompt": "a", "input_ids": [1]}, "exactly one of prompt and input_ids"),
        ({"prompt": ""}, "no tokens"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [[]]}, "no tokens"),
        ({"input_ids": [-1]}, "token id -1"),
        ({"input_ids": [10**9]}, "token id 1000000000"),
        ({"input_ids": ["x"]}, "whole numbers"),
        ({"prompt": [5]}, "a prompt is int, expected str"),
        ({"prompt": "a", "params": {"top_p": 2}}, "top_p=2"),
        ({"prompt": "a", "params": {"hot": 1}}, r"unknown \['hot'\]"),
        ({"prompt": "a", "params": {"logit_bias": {"9999": 1}}}, "token id 9999"),
        ({"prompt": "a", "rid": ["x", "y"]}, "2 for 1 prompts"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(given: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        build(**given)


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(ContextLengthError, match=r"16 tokens, at most 15 fit \(context 20, KV pool 16\)"):
        build(prompt="a" * 16)
    assert build(prompt="a" * 15)


def test_logprob_arguments_become_one() -> None:
    assert logprob_params(False, 0, 3, None, False) is None
    params = logprob_params(True, -1, None, None, False)
    assert params is not None
    assert params.start_len is None
    with pytest.raises(RequestError, match="top_logprobs_num=-1"):
        logprob_params(True, 0, -1, None, False)
