"""Constructors: SGLang's names, order and defaults; what can be refused early is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sglang_lite import lang
from sglang_lite.errors import GrammarError, RequestError, UnsupportedError
from sglang_lite.lang import (
    SglFunction,
    function,
    gen,
    gen_int,
    gen_string,
    greedy_token_selection,
    image,
    literal,
    select,
    token_length_normalized,
    video,
)
from sglang_lite.lang.ir import SglGen, SglRoleBegin, SglRoleEnd, SglSelect

GEN = [
    "name",
    "max_tokens",
    "min_tokens",
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "ignore_eos",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_text_in_logprobs",
    "dtype",
    "choices",
    "choices_method",
    "regex",
    "json_schema",
]
DROPPED = {"min_tokens", "dtype", "choices", "choices_method", "regex", "json_schema"}
RUN = [
    "max_new_tokens=128",
    "n=1",
    "stop=None",
    "stop_token_ids=None",
    "stop_regex=None",
    "temperature=1.0",
    "top_p=1.0",
    "top_k=-1",
    "min_p=0.0",
    "frequency_penalty=0.0",
    "presence_penalty=0.0",
    "ignore_eos=False",
    "return_logprob=None",
    "logprob_start_len=None",
    "top_logprobs_num=None",
    "return_text_in_logprobs=None",
]


def parameters(func: Any) -> list[str]:
    return list(inspect.signature(func).parameters)


def test_the_order_of_parameters_is_sglangs() -> None:
    own = [p.name for p in inspect.signature(gen).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert parameters(gen) == [*GEN, *own], "what is not SGLang's is given by name"
    short = [name for name in GEN if name not in DROPPED]
    assert parameters(gen_int) == parameters(gen_string) == short
    assert parameters(select) == ["name", "choices", "temperature", "choices_method"]
    assert all(not p.default for p in inspect.signature(gen).parameters.values())


def test_the_parameters_of_run_and_run_batch_are_sglangs() -> None:
    def shown(func: Any) -> list[str]:
        return [f"{p.name}={p.default!r}" for p in inspect.signature(func).parameters.values()]

    assert shown(SglFunction.run)[2:-1] == [*RUN, "stream=False", "backend=None", "use_thread=True"]
    tail = ["backend=None", "num_threads='auto'", "progress_bar=False", "generator_style=False", "options=None"]
    tail += ["out=None", "resume=False", "ordered=False", "max_in_flight=256"]
    assert shown(SglFunction.run_batch)[2:] == [*RUN, *tail]


def test_gen_keeps_only_what_is_given() -> None:
    node = gen("x", 16, stop=["a", "b"], temperature=0)
    assert isinstance(node, SglGen)
    assert (node.name, node.max_tokens, node.stop, node.temperature) == ("x", 16, ("a", "b"), 0)
    assert node.top_p is node.regex is node.dtype is node.n is None


def test_gen_int_and_gen_string_pass_everything_on() -> None:
    given: dict[str, Any] = {name: 1 for name in GEN if name not in DROPPED | {"name", "stop", "stop_regex"}}
    given |= {"name": "x", "stop": "s", "stop_regex": ["r"], "ignore_eos": True}
    for func, dtype in ((gen_int, "int"), (gen_string, "str")):
        node = func(**given)
        assert isinstance(node, SglGen)
        assert node.dtype == dtype
        assert node.stop == ("s",)
        assert node.stop_regex == ("r",)
        assert all(getattr(node, name) == given[name] for name in given if not name.startswith("stop"))


def test_gen_with_choices_is_select() -> None:
    node = gen("x", max_tokens=3, choices=["a", ""], choices_method=greedy_token_selection)
    assert isinstance(node, SglSelect)
    assert (node.choices, node.choices_method) == (("a", ""), greedy_token_selection)
    plain = gen("x", choices=("a",))
    assert isinstance(plain, SglSelect)
    assert plain.choices_method is token_length_normalized


@pytest.mark.parametrize("bad", [None, [], "abc", ["a", 3], ["a", None]])
def test_select_refuses_choices_that_are_no_list_of_texts(bad: Any) -> None:
    with pytest.raises(RequestError, match="making select 'x'"):
        select("x", bad)


def test_select_refuses_a_temperature_and_a_method_that_is_none() -> None:
    with pytest.raises(UnsupportedError, match=r"temperature=0\.7"):
        gen("x", choices=["a"], temperature=0.7)
    with pytest.raises(RequestError, match="choices_method='greedy'"):
        select("x", ["a"], 0.0, "greedy")


@pytest.mark.parametrize("dtype", [int, "int", float, "float", str, "str", bool, "bool"])
def test_a_dtype_is_a_type_or_its_name(dtype: Any) -> None:
    node = gen("x", dtype=dtype)
    assert isinstance(node, SglGen)
    assert node.dtype == (dtype if isinstance(dtype, str) else dtype.__name__)


@pytest.mark.parametrize("dtype", [list, "number", 3])
def test_another_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(RequestError, match="reading dtype"):
        gen("x", dtype=dtype)


def test_a_broken_regex_or_schema_is_refused_at_once() -> None:
    with pytest.raises(GrammarError, match=r"regex='\('"):
        gen("x", regex="(")
    with pytest.raises(GrammarError, match="no JSON text"):
        gen("x", json_schema="{")


def test_a_schema_may_be_a_dict_and_keeps_its_order() -> None:
    node = gen("x", json_schema={"zeta": 1, "alpha": "ä"})
    assert isinstance(node, SglGen)
    assert node.json_schema == '{"zeta": 1, "alpha": "ä"}'


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_roles_come_as_a_block_and_in_halves(role: str) -> None:
    begin, end = getattr(lang, f"{role}_begin")(), getattr(lang, f"{role}_end")()
    assert (type(begin), begin.role, type(end), end.role) == (SglRoleBegin, role, SglRoleEnd, role)
    nodes = getattr(lang, role)("text").expr_list
    assert [type(nodes[0]), nodes[0].role, nodes[1].value, nodes[2].role] == [SglRoleBegin, role, "text", role]


def test_images_and_videos_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="images are not supported"):
        image("cat.png")
    with pytest.raises(UnsupportedError, match="videos are not supported"):
        video("cat.mp4", 3)


def test_literal_takes_text_only() -> None:
    with pytest.raises(RequestError, match="making a literal: got 3"):
        literal(3)


def test_function_works_bare_and_called() -> None:
    @function
    def bare(s: Any) -> None:
        """What it does."""

    @function(num_api_spec_tokens=4)
    def called(s: Any, x: int) -> None: ...

    assert (bare.__name__, bare.__doc__, bare.num_api_spec_tokens) == ("bare", "What it does.", None)
    assert (called.__name__, called.num_api_spec_tokens, called.arg_names) == ("called", 4, ["x"])


def test_every_exported_name_exists() -> None:
    assert sorted(lang.__all__) == sorted(set(lang.__all__))
    assert all(hasattr(lang, name) for name in lang.__all__)
