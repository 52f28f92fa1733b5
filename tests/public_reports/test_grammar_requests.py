"""Public reports about constraints of requests: bad ones harm nobody, batches are not mixed up, limits end them, forced tokens are as written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import sglang_lite as sgl
from sglang_lite.grammar import GrammarCompiler
from sglang_lite.runtime.engine.build import _token_vocab
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.model

GREEDY = {"temperature": 0.0, "max_new_tokens": 12}
BAD_REGEXES = ["(", "[", "*a", "(?P<x>a", "\\", "[z-a]", "(?=a)b", "(?<!a)b", r"(a)\1", "foo**"]
BAD_SCHEMAS = ['{"pattern": "("}', '{"type": "strin"}', "not json", "[]", "7", "null", '{"properties": []}']


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    engine.generate("x", {"regex": "a", "max_new_tokens": 2})  # kernels are compiled before anybody waits for a reply
    with live_server(engine) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize(
    "constraint",
    [
        *({"regex": one} for one in BAD_REGEXES),
        *({"json_schema": one} for one in BAD_SCHEMAS),
        {"structural_tag": "{}"},
    ],
    ids=lambda constraint: str(constraint),
)
def test_a_bad_constraint_is_the_error_of_its_request_alone(server: LiveServer, constraint: dict[str, str]) -> None:
    """C60, C65: 4xx with the reason, also the second time and in a stream, while others run."""
    body = {"text": "Hello", "sampling_params": GREEDY}
    with ThreadPoolExecutor(4) as pool:
        plain = [pool.submit(server.post, "/generate", body) for _ in range(2)]
        bad = [
            pool.submit(server.post, "/generate", body | {"sampling_params": GREEDY | constraint, "stream": stream})
            for stream in (False, False, True)
        ]
    for reply in bad:
        assert reply.result().status_code == 400
        assert next(iter(constraint)) in reply.result().json()["error"]["message"]
    assert {reply.result().status_code for reply in plain} == {200}
    assert len({reply.result().json()["text"] for reply in plain}) == 1


def test_rows_of_one_batch_keep_their_own_masks(engine: Engine) -> None:
    """C67, sgl-project/sglang#1296: free and constrained requests share prefix and batch, twice, the second time from the cache."""
    prompt = "A long common beginning that all of the requests share, word for word. " * 4
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "yy"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    kinds = [
        {},
        {},
        {"json_schema": json.dumps(schema)},
        {"json_schema": '{"type": "boolean"}'},
        {"regex": r"\d{3}"},
        {},
    ]
    alone = [engine.generate(prompt, GREEDY | kind)["text"] for kind in kinds]  # type: ignore[call-overload]
    for _ in range(2):
        together = engine.generate([prompt] * len(kinds), [GREEDY | kind for kind in kinds])
        assert isinstance(together, list)
        assert [reply["text"] for reply in together] == alone
    assert json.loads(alone[2])["a"] in ("x", "yy")
    assert alone[3] in ("true", "false")
    assert re.fullmatch(r"\d{3}", alone[4])


@pytest.mark.parametrize("mode", ["off", "verify", "force"])
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_the_limit_of_tokens_ends_a_constrained_text(engine: Engine, limit: int, mode: str) -> None:
    """C69: inside a forced run too; the text is the begin of one that the constraint allows."""
    schema = '{"type": "object", "properties": {"a_rather_long_name_of_a_member": {"type": "string"}}, "required": ["a_rather_long_name_of_a_member"]}'
    compiler = GrammarCompiler(_token_vocab(engine.tokenizer))
    for constraint, grammar in (
        ({"regex": r"([^\n]*\n){1,6}"}, compiler.compile_regex(r"([^\n]*\n){1,6}")),
        ({"json_schema": schema}, compiler.compile_json_schema(schema)),
    ):
        params = {"temperature": 0.0, "max_new_tokens": limit, "jump_forward": mode}
        reply = engine.generate("Text:\n", params | constraint)
        assert isinstance(reply, dict)
        assert reply["meta_info"]["finish_reason"] == {"type": "length"}
        assert len(reply["output_ids"]) == reply["meta_info"]["completion_tokens"] == limit
        assert grammar.advance_bytes(grammar.start_state, reply["text"].encode()) >= 0


def test_forced_tokens_are_counted_where_one_looks(server: LiveServer, engine: Engine) -> None:
    """sgl-project/sglang#8954: the option had no effect and nothing showed it."""
    before = engine.get_server_info()["forced_tokens"]
    params = {"temperature": 0.0, "regex": "The quick brown fox jumps over the lazy dog", "max_new_tokens": 30}
    reply = server.post("/generate", {"text": "Say:", "sampling_params": params}).json()
    forced = reply["meta_info"]["forced_tokens"]
    assert forced > 0
    assert engine.get_server_info()["forced_tokens"] - before == forced
    assert "sglang_lite:forced_tokens_total{" in server.http.get("/metrics").text
    off = server.post("/generate", {"text": "Say:", "sampling_params": params | {"jump_forward": "off"}}).json()
    assert off["meta_info"]["forced_tokens"] == 0
    assert off["text"] == reply["text"]


def test_forced_text_is_spelled_as_the_tokenizer_spells_it(engine: Engine) -> None:
    """sgl-project/sglang#2045: jumps left the text in other tokens than the model knows."""
    text = "The quick brown fox jumps over the lazy dog"
    reply = engine.generate("Say: ", {"regex": text, "max_new_tokens": 30, "jump_forward": "force"})
    assert isinstance(reply, dict)
    assert reply["text"] == text
    own = engine.tokenizer.encode(text, parse_special=False)
    assert reply["output_ids"][: len(own) - 1] == own[:-1]


def test_programs_see_which_tokens_were_forced(engine: Engine) -> None:
    text = "The quick brown fox jumps over the lazy dog"

    @sgl.function
    def program(s: Any) -> None:
        s += "Say:" + sgl.gen("x", regex=text, temperature=0.0)

    state = program.run(backend=engine)
    assert state["x"] == text
    assert state.get_meta_info("x")["forced_tokens"] > 0


def test_members_come_in_the_order_of_the_schema(client: openai.OpenAI) -> None:
    """C58: at both levels, whatever the order of `required`; a schema without `strict` is held all the same."""
    inner = {"type": "object", "properties": {"b": {"const": 1}, "a": {"const": 2}}, "required": ["a", "b"]}
    schema = {
        "type": "object",
        "properties": {"zeta": inner, "alpha": {"const": 3}, "mid": {"const": [4, 4]}},
        "required": ["mid", "zeta", "alpha"],
        "additionalProperties": False,
    }
    inner["additionalProperties"] = False
    schema["properties"]["mid"] = {
        "type": "array",
        "items": {"type": "integer", "maximum": 99},
        "minItems": 2,
        "maxItems": 2,
        "uniqueItems": True,
    }  # type: ignore[index]
    answer = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Go"}],
        temperature=0,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    value = json.loads(answer.choices[0].message.content or "")
    assert list(value) == ["zeta", "alpha", "mid"]
    assert list(value["zeta"]) == ["b", "a"]
    (note,) = answer.choices[0].grammar_notes  # type: ignore[attr-defined]
    assert "uniqueItems at /properties/mid/uniqueItems was not enforced" in note
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Go"}],
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        )


def test_the_end_of_thinking_inside_a_step_of_several_tokens_begins_the_constraint(engine: Engine) -> None:
    """vllm-project/vllm#36138: the constraint was not applied to what followed the end mark inside one step."""
    params = {"thinking": ("<think>", "</think>"), "thinking_budget": 0, "regex": "(yes|no)!", "max_new_tokens": 30}
    replies = [
        engine.generate("Well? ", {"temperature": 0.0, "jump_forward": mode} | params)
        for mode in ("off", "verify", "force")
    ]
    texts = [reply["text"] for reply in replies]  # type: ignore[call-overload]
    assert texts[0] == texts[1]
    assert all(re.fullmatch(r"<think>\n\n</think>(yes|no)!", text) for text in texts)
