"""Constraints on the real model: forced tokens change nothing but time, thinking comes before the answer, replies say what was left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.constrained_prompts import CASES
from sglang_lite.errors import GrammarError, RequestError
from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import running_engine

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def native() -> Iterator[Engine]:
    """The native step, whose numbers do not depend on how many tokens a row has; steps are planned ahead."""
    with running_engine(dtype="auto", max_total_tokens=4096, disable_overlap_schedule=False) as engine:
        yield engine


def generate(engine: Engine, sampling: dict[str, Any]) -> list[dict[str, Any]]:
    params = [{"max_new_tokens": 60} | constraint | sampling for _, constraint in CASES]
    replies = engine.generate([prompt for prompt, _ in CASES], params)
    assert isinstance(replies, list)
    return replies


@pytest.mark.native
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "top_p": 0.95, "seed": 11}])
def test_verified_forced_tokens_are_those_that_would_have_been_drawn(native: Engine, sampling: dict[str, Any]) -> None:
    off = generate(native, sampling | {"jump_forward": "off"})
    verified = generate(native, sampling)
    assert [reply["output_ids"] for reply in verified] == [reply["output_ids"] for reply in off]
    assert [reply["text"] for reply in verified] == [reply["text"] for reply in off]
    assert sum(reply["meta_info"]["forced_tokens"] for reply in off) == 0
    assert sum(reply["meta_info"]["forced_tokens"] for reply in verified) > 50


@pytest.mark.native
def test_what_is_forced_keeps_the_language_and_saves_more(native: Engine) -> None:
    """And its tokens are as the tokenizer writes them: their share grows, since one jump makes the next one certain."""
    verified, given = (generate(native, {"temperature": 0, "jump_forward": mode}) for mode in ("verify", "force"))
    forced = [sum(reply["meta_info"]["forced_tokens"] for reply in replies) for replies in (verified, given)]
    assert forced[1] > forced[0]
    for (_, constraint), reply in zip(CASES, given, strict=True):
        if reply["meta_info"]["finish_reason"]["type"] == "length":
            continue
        if "regex" in constraint:
            assert re.fullmatch(constraint["regex"], reply["text"])
        else:
            assert set(json.loads(reply["text"])) == set(json.loads(constraint["json_schema"])["required"])


@pytest.mark.native
def test_log_probabilities_do_not_depend_on_who_chose_the_token(native: Engine) -> None:
    prompt, constraint = CASES[0]
    replies = [
        native.generate(
            prompt,
            {"temperature": 0, "max_new_tokens": 24, "jump_forward": mode} | constraint,
            return_logprob=True,
            top_logprobs_num=2,
        )
        for mode in ("off", "verify")
    ]
    lists = [reply["meta_info"]["output_top_logprobs"] for reply in replies]  # type: ignore[call-overload]
    assert lists[0] == lists[1]
    assert replies[1]["meta_info"]["forced_tokens"] > 0  # type: ignore[call-overload]


@pytest.mark.parametrize("budget", [0, 4])
def test_the_answer_comes_after_the_thinking(engine: Engine, budget: int) -> None:
    params = {"temperature": 0, "max_new_tokens": 40, "thinking": ("<think>", "</think>"), "thinking_budget": budget}
    reply = engine.generate("Is water wet?\n<think>", params | {"regex": "(yes|no)!"})
    assert isinstance(reply, dict)
    thought, _, answer = reply["text"].partition("</think>")
    assert re.fullmatch("(yes|no)!", answer)
    assert len(engine.tokenizer.encode(thought, parse_special=True)) <= budget
    free = engine.generate("Is water wet?\n<think>", params)
    assert isinstance(free, dict)
    assert free["text"].startswith(f"{thought}</think>")


def test_a_model_that_does_not_think_answers_under_the_constraint_at_once(engine: Engine) -> None:
    """This one knows no marks, and writes none: without them its text is the answer from the first token on."""
    params = {"temperature": 0, "max_new_tokens": 40, "thinking": ("<think>", "</think>"), "regex": "(yes|no)!"}
    reply = engine.generate("Is water wet?\n", params)
    assert isinstance(reply, dict)
    assert re.fullmatch("(yes|no)!", reply["text"])
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"


def test_structural_tags_hold_what_is_inside_them(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"q": {"enum": ["cats"]}},
        "required": ["q"],
        "additionalProperties": False,
    }
    content = {"type": "json_schema", "json_schema": schema}
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"},
    }
    reply = engine.generate(
        "Call: ",
        {"temperature": 0, "max_new_tokens": 40, "structural_tag": json.dumps(tag)},
    )
    assert isinstance(reply, dict)
    assert re.fullmatch('<call>{"q":"cats"}</call>', reply["text"])


def test_a_schema_that_is_not_strict_says_what_was_left_out(engine: Engine) -> None:
    hard = json.dumps(
        {
            "type": "array",
            "items": {"type": "integer", "maximum": 10**6},
            "minItems": 2,
            "maxItems": 2,
            "uniqueItems": True,
        }
    )
    with pytest.raises(GrammarError, match="uniqueItems"):
        engine.generate("Numbers: ", {"json_schema": hard})
    reply = engine.generate("Numbers: ", {"json_schema": hard, "json_strict": False, "temperature": 0})
    assert isinstance(reply, dict)
    (note,) = reply["meta_info"]["grammar_notes"]
    a, b = json.loads(reply["text"])
    assert note.startswith("uniqueItems at /uniqueItems was not enforced")
    assert note.endswith("the value holds it") == (a != b)
    whole = engine.generate("A number: ", {"json_schema": '{"type": "integer"}', "json_strict": False})
    assert isinstance(whole, dict)
    assert "grammar_notes" not in whole["meta_info"]


def test_white_space_is_as_asked_for(engine: Engine) -> None:
    schema = (
        '{"type": "object", "properties": {"a": {"const": [1, 2]}}, "required": ["a"], "additionalProperties": false}'
    )
    for white_space, text in (("compact", '{"a":[1,2]}'), ("spaced", '{"a": [1, 2]}')):
        reply = engine.generate("x", {"json_schema": schema, "json_whitespace": white_space})
        assert isinstance(reply, dict)
        assert reply["text"] == text


def test_another_grammar_engine_may_be_chosen_and_says_what_it_has_not() -> None:
    with running_engine(grammar_backend="outlines") as engine:
        reply = engine.generate("x", {"regex": "a{3}b", "max_new_tokens": 20})
        assert isinstance(reply, dict)
        assert reply["text"] == "aaab"
        with pytest.raises(GrammarError, match="'outlines' has no ebnf"):
            engine.generate("x", {"ebnf": 'root ::= "a"'})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jump_forward": "on"}, "jump_forward='on', expected one of 'off', 'verify', 'force'"),
        ({"grammar_backend": "xgrammar"}, "grammar_backend='xgrammar', expected one of 'native', 'outlines'"),
        ({"grammar_compile_timeout_s": 0}, "grammar_compile_timeout_s=0, expected seconds above 0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        Engine(**settings)
