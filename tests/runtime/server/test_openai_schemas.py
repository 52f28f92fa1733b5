from __future__ import annotations

import json

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.openai_schemas import (
    REFUSED_FIELDS,
    WITHOUT_EFFECT_FIELDS,
    ChatBody,
    CompletionBody,
    max_tokens_of,
)

CHAT = {"messages": [{"role": "user", "content": "x"}]}


def chat(**fields: object) -> ChatBody:
    return ChatBody.model_validate(CHAT | fields)


def test_every_field_of_the_tables_is_a_field() -> None:
    known = set(ChatBody.model_fields) | set(CompletionBody.model_fields)
    assert set(REFUSED_FIELDS) <= known
    assert set(WITHOUT_EFFECT_FIELDS) <= known


@pytest.mark.parametrize("name", sorted(set(REFUSED_FIELDS) & set(ChatBody.model_fields)))
def test_a_refused_field_is_named_and_empty_values_are_taken(name: str) -> None:
    chat(**{name: None}).check(1)
    value = ["x"] if name == "functions" else {"x": 1}
    with pytest.raises(RequestError, match=name):
        chat(**{name: value}).check(1)


def test_names_of_both_worlds_reach_the_sampler() -> None:
    params = chat(stop="a", top_k=3, min_tokens=2, repetition_penalty=1.5, seed=-1, logit_bias={"5": 1.0}).sampling(7)
    assert (params.stop, params.top_k, params.min_new_tokens, params.repetition_penalty) == (("a",), 3, 2, 1.5)
    assert (params.max_new_tokens, params.seed, params.logit_bias) == (7, 2**63 - 1, ((5, 1.0),))


def test_both_names_of_the_longest_answer() -> None:
    assert max_tokens_of(chat()) is None
    assert max_tokens_of(chat(max_tokens=3)) == max_tokens_of(chat(max_completion_tokens=3)) == 3
    assert max_tokens_of(chat(max_tokens=3, max_completion_tokens=3)) == 3


def test_formats_become_schemas() -> None:
    assert chat().constraint() == {}
    assert chat(response_format={"type": "text"}).constraint() == {}
    assert chat(response_format={"type": "json_object"}).constraint() == {"json_schema": '{"type": "object"}'}
    tags = {"type": "structural_tag", "triggers": ["<a"], "structures": []}
    assert json.loads(chat(response_format=tags).constraint()["structural_tag"]) == tags
    schema = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "integer"}}}
    wanted = {"json_schema": '{"type": "integer"}', "json_strict": True}
    assert chat(response_format=schema).constraint() == wanted
    del schema["json_schema"]["strict"]  # OpenAI's default is not strict
    assert chat(response_format=schema).constraint() == wanted | {"json_strict": False}
