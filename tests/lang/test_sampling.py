"""Resolution of a gen's arguments over the run's defaults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import gen
from sglang_lite.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR, SglGen
from sglang_lite.lang.sampling import as_tuple, resolve_gen, run_defaults
from sglang_lite.request_tree import LogprobParams, SamplingParams


def resolve(*args: Any, defaults: dict[str, Any] | None = None, **given: Any) -> SamplingParams:
    node = gen("x", *args, **given)
    assert isinstance(node, SglGen)
    return resolve_gen(node, run_defaults(**(defaults or {})))[0]


def test_a_gen_without_arguments_takes_the_runs_defaults() -> None:
    defaults: dict[str, Any] = {"max_new_tokens": 7, "stop": "x", "temperature": 0.5, "top_k": 3, "ignore_eos": True}
    assert resolve(defaults=defaults) == SamplingParams(7, stop=("x",), temperature=0.5, top_k=3, ignore_eos=True)


def test_a_gen_overrides_what_it_says_falsy_values_too() -> None:
    defaults: dict[str, Any] = {"stop": ["x"], "temperature": 0.5, "ignore_eos": True, "max_new_tokens": 7}
    params = resolve(0, 2, temperature=0.0, stop=[], ignore_eos=False, defaults=defaults)
    assert params == SamplingParams(0, 2, stop=(), temperature=0.0, ignore_eos=False)


def test_every_sampling_argument_arrives() -> None:
    given: dict[str, Any] = {
        "n": 2,
        "stop": "a",
        "stop_token_ids": [1, 2],
        "stop_regex": "b+",
        "temperature": 0.3,
        "top_p": 0.4,
        "top_k": 5,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.6,
        "ignore_eos": True,
        "regex": "c",
    }
    params = resolve(3, 1, **given)
    expected = given | {"stop": ("a",), "stop_token_ids": (1, 2), "stop_regex": ("b+",)}
    assert params == SamplingParams(3, 1, **expected)


def test_every_option_of_a_constraint_arrives() -> None:
    options: dict[str, Any] = {"json_whitespace": "spaced", "json_strict": False, "jump_forward": "force"}
    assert resolve(3, json_schema="{}", **options) == SamplingParams(3, json_schema="{}", **options)
    assert resolve(3, ebnf='root ::= "a"').ebnf == 'root ::= "a"'
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "é"}}
    assert json.loads(resolve(3, structural_tag=tag).structural_tag or "") == tag
    assert resolve(3, structural_tag=json.dumps(tag)).structural_tag == json.dumps(tag)
    assert resolve(3, type=int, jump_forward="off").jump_forward == "off"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jump_forward": "on"}, "jump_forward='on', expected one of"),
        ({"json_whitespace": "none"}, "json_whitespace='none', expected one of"),
        ({"structural_tag": "<a>"}, "structural_tag is no JSON text"),
        ({"regex": "a", "ebnf": "b"}, "regex and ebnf are both set"),
        ({"type": int, "ebnf": "b"}, "got type=int and ebnf='b', expected one of them"),
        ({"tools": [], "structural_tag": "{}"}, "got tools and structural_tag, expected one of them"),
    ],
)
def test_options_of_a_constraint_that_cannot_be_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(**given)


@pytest.mark.parametrize(
    ("dtype", "regex", "stops"),
    [
        (int, REGEX_INT, ("\n\n", " ", "\n")),
        ("float", REGEX_FLOAT, ("\n\n", " ", "\n")),
        (str, REGEX_STR, ("\n\n",)),
        ("bool", REGEX_BOOL, ("\n\n",)),
    ],
)
def test_a_dtype_is_a_regex_and_stops(dtype: Any, regex: str, stops: tuple[str, ...]) -> None:
    params = resolve(dtype=dtype, defaults={"stop": "\n\n"})
    assert (params.regex, params.stop) == (regex, stops)


def test_a_dtype_wins_over_a_regex_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="has dtype and regex"):
        assert resolve(dtype=int, regex="a").regex == REGEX_INT


def test_a_wrong_value_is_refused_when_it_is_appended() -> None:
    with pytest.raises(RequestError, match="temperature=-1"):
        resolve(temperature=-1)
    with pytest.raises(RequestError, match="regex and json_schema are both set"):
        resolve(regex="a", json_schema="{}")
    with pytest.raises(RequestError, match="top_p=3"):
        run_defaults(top_p=3)


def test_logprobs_are_wanted_only_when_asked_for() -> None:
    node, full = gen("x"), gen("x", return_logprob=True, logprob_start_len=-1, top_logprobs_num=4)
    assert isinstance(node, SglGen)
    assert isinstance(full, SglGen)
    assert resolve_gen(node, run_defaults(top_logprobs_num=2))[1] is None
    defaults = run_defaults(return_logprob=True, logprob_start_len=0, return_text_in_logprobs=True)
    assert resolve_gen(node, defaults)[1] == LogprobParams(0, 0, (), True)
    assert resolve_gen(full, defaults)[1] == LogprobParams(None, 4, (), True)


def test_as_tuple_takes_one_value_or_many() -> None:
    given = ["a", "b"]
    assert as_tuple("stop", given) == ("a", "b")
    assert as_tuple("stop", "ab") == ("ab",)
    assert as_tuple("stop_token_ids", 3) == (3,)
    assert as_tuple("stop", None) is None
    with pytest.raises(RequestError, match=r"reading stop: got 1\.5"):
        as_tuple("stop", 1.5)
