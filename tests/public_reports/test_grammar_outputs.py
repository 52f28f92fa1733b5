"""Public reports about what comes out under a JSON schema, on the real model: values as listed, numbers that end, order, bad and plain schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

import sglang_lite as sgl
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.model

SEEDS = range(20)
YEAR = {
    "type": "object",
    "properties": {"year": {"type": "integer"}},
    "required": ["year"],
    "additionalProperties": False,
}


class Inner(pydantic.BaseModel, extra="forbid"):
    b: bool
    a: bool


class Ordered(pydantic.BaseModel, extra="forbid"):
    zeta: Inner
    alpha: bool
    mid: bool


ORDERED = {
    "type": "object",
    "properties": {
        "zeta": {
            "type": "object",
            "properties": {"b": {"type": "boolean"}, "a": {"type": "boolean"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "alpha": {"type": "boolean"},
        "mid": {"type": "boolean"},
    },
    "required": ["mid", "alpha", "zeta"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine) as running:
        yield running


def sampled(engine: Engine, schema: object, **params: object) -> list[dict[str, Any]]:
    """One reply for each seed, at temperature 1."""
    drawn = [{"temperature": 1.0, "seed": seed, "json_schema": json.dumps(schema), **params} for seed in SEEDS]
    replies = engine.generate(["A value in JSON: "] * len(drawn), drawn)
    assert isinstance(replies, list)
    return replies


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [1, 2.5, -3, "4", None, False]},
        {"enum": ["http://a.b/c", "x.y*z", "(p|q)"]},
        {"const": 'say "hi" \\ bye'},
        {"const": {"a": [1, "x"]}},
    ],
    ids=json.dumps,
)
def test_a_fixed_value_comes_out_as_it_was_given(engine: Engine, schema: dict[str, Any]) -> None:
    """C46: values were written as Python literals, quotes and backslashes not escaped."""
    allowed = schema.get("enum", [schema.get("const")])
    for reply in sampled(engine, schema, max_new_tokens=40):
        assert reply["meta_info"]["finish_reason"]["type"] == "stop"
        value = json.loads(reply["text"])
        assert (type(value), value) in [(type(one), one) for one in allowed]


@pytest.mark.parametrize(("whitespace", "most"), [("compact", 64), ("any", 160)])
def test_an_integer_ends_though_zeros_and_white_space_are_pushed(engine: Engine, whitespace: str, most: int) -> None:
    """C54: rules let the model add zeros, or white space, without end; with `any`, each gap is bounded."""
    tokenizer = engine.tokenizer
    pushed = [i for i, piece in enumerate(tokenizer.token_bytes) if piece and re.fullmatch(rb"0+|[ \n\t\r]+", piece)]
    params = {"temperature": 0.0, "max_new_tokens": 200, "json_whitespace": whitespace, "json_schema": json.dumps(YEAR)}
    reply = engine.generate("Year: ", params | {"logit_bias": {str(i): 100.0 for i in pushed}})
    assert isinstance(reply, dict)
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    assert reply["meta_info"]["completion_tokens"] <= most
    assert isinstance(json.loads(reply["text"])["year"], int)


def test_members_keep_their_order_for_every_seed_and_every_way_to_give_a_schema(engine: Engine) -> None:
    """C58: the order was lost on the way; `required` in another order makes no difference."""
    for reply in sampled(engine, ORDERED, max_new_tokens=80):
        value = json.loads(reply["text"])
        assert (list(value), list(value["zeta"])) == (["zeta", "alpha", "mid"], ["b", "a"])

    @sgl.function
    def program(s: Any, how: dict[str, Any]) -> None:
        s += "A value: " + sgl.gen("x", temperature=1.0, max_tokens=80, **how)

    for how in ({"json_schema": ORDERED}, {"json_schema": json.dumps(ORDERED)}, {"type": Ordered}):
        value = json.loads(program.run(how, backend=engine).text()[len("A value: ") :])
        assert (list(value), list(value["zeta"])) == (["zeta", "alpha", "mid"], ["b", "a"])


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "yaml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "strin"}}},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_response_format_is_refused_each_time(server: LiveServer, response_format: object, stream: bool) -> None:
    """C60: it was ignored, with a free text in a reply of status 200, or took the scheduler down."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], "max_tokens": 4, "stream": stream}
    for _ in range(2):
        reply = server.post("/v1/chat/completions", body | {"response_format": response_format})
        assert 400 <= reply.status_code < 500
        assert reply.json()["error"]["message"]
    assert server.post("/v1/chat/completions", body | {"stream": False}).status_code == 200


@pytest.mark.parametrize(
    ("response_format", "kind"),
    [
        ({"type": "json_object"}, dict),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}, dict),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}}, list),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object", "additionalProperties": {"type": "integer"}}},
            },
            dict,
        ),
    ],
    ids=str,
)
def test_plain_schemas_give_values_of_their_kind(server: LiveServer, response_format: Any, kind: type) -> None:
    """C62: the schema of any object did not compile; `json_object` never gives a bare scalar."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], "max_tokens": 24, "temperature": 0}
    choice = server.post("/v1/chat/completions", body | {"response_format": response_format}).json()["choices"][0]
    text = choice["message"]["content"]
    assert text.startswith("{" if kind is dict else "[")
    if choice["finish_reason"] == "stop":
        value = json.loads(text)
        assert isinstance(value, kind)
        schema = response_format.get("json_schema", {}).get("schema", {})
        if "additionalProperties" in schema:
            assert all(type(one) is int for one in value.values())
    else:
        assert choice["finish_reason"] == "length"


def test_an_unknown_format_is_an_annotation(server: LiveServer) -> None:
    """C60: a known format is enforced, an unknown one says nothing."""
    for name, pattern in (("email", r".+@.+"), ("no-such-format", r"(?s).*")):
        schema = {"type": "string", "format": name, "maxLength": 12}
        params = {"temperature": 0.0, "max_new_tokens": 40, "json_schema": json.dumps(schema)}
        reply = server.post("/generate", {"text": "Value: ", "sampling_params": params})
        assert reply.status_code == 200
        if reply.json()["meta_info"]["finish_reason"]["type"] == "stop":
            assert re.fullmatch(pattern, json.loads(reply.json()["text"]))
