"""OpenAI's API through its own client, against a stub that speaks it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from sglang_lite.errors import (
    ContextLengthError,
    ExecutionError,
    QueueFullError,
    RequestError,
    TruncatedError,
    UnsupportedError,
)
from sglang_lite.lang import ProgramState, assistant, function, gen, select, system, user
from sglang_lite.lang.backends.hosted import OpenAI
from sglang_lite.lang.backends.hosted.forms import InvalidReplyError
from sglang_lite.lang.backends.hosted.messages import ModelRequest
from sglang_lite.lang.backends.hosted.openai_api import from_string
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.request_tree import SamplingParams
from tests.lang.backends.hosted.support import no_sleep
from tests.support.hosted_stub import Cut, Failure, Stub, hosted_stub

KEY = "sk-verysecretkey0123456789"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with hosted_stub("Hello") as made:
        yield made


def made(stub: Stub, model: str = "gpt-x", is_chat_model: bool | None = True, **more: Any) -> OpenAI:
    arguments: dict[str, Any] = {"api_key": KEY, "policy": RetryPolicy(sleep=no_sleep), **more}
    return OpenAI(model, is_chat_model, base_url=f"{stub.url}/v1", **arguments)


@function
def ask(s: ProgramState, **given: Any) -> None:
    s += system("S") + user("Q") + assistant(gen("a", **given))


@function
def tell(s: ProgramState, **given: Any) -> None:
    s += "Once" + gen("a", **given)


def test_a_chat_is_one_call_with_what_was_asked_for(stub: Stub) -> None:
    state = ask.run(stop=["\n"], max_tokens=7, backend=made(stub), temperature=0.3, top_p=0.9, frequency_penalty=0.5)
    (path, headers, body), *rest = stub.requests
    assert rest == []
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "gpt-x",
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
        "temperature": 0.3,
        "top_p": 0.9,
        "frequency_penalty": 0.5,
        "n": 1,
        "max_tokens": 128,
    } | {"stop": ["\n"]} | {"max_tokens": 7}
    assert state["a"] == "Hello"
    meta = state.get_meta_info("a")
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (2, 1, 1)
    assert (meta["finish_reason"], meta["requests"]) == ({"type": "stop"}, 1)


def test_a_text_is_a_completion_and_turns_are_written_out_for_a_text_model(stub: Stub) -> None:
    backend = made(stub, "gpt-3.5-turbo-instruct", None, chat_template="chatml")
    tell.run(backend=made(stub, is_chat_model=False))
    ask.run(backend=OpenAI("gpt-3.5-turbo-instruct", False, "chatml", base_url=f"{stub.url}/v1", api_key=KEY))
    assert [path for path, _, _ in stub.requests] == ["/v1/completions"] * 2
    assert stub.bodies[0]["prompt"] == "Once"
    assert (
        stub.bodies[1]["prompt"]
        == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    )
    assert stub.bodies[1]["stop"] == ["<|im_end|>"]
    assert backend.abilities.chat
    assert backend.abilities.completion


def test_at_another_address_turns_and_text_find_their_way(stub: Stub) -> None:
    backend = made(stub, is_chat_model=None)
    ask.run(backend=backend)
    tell.run(backend=backend)
    assert [path for path, _, _ in stub.requests] == ["/v1/chat/completions", "/v1/completions"]


@pytest.mark.parametrize("program", [ask, tell])
def test_streams_join_to_the_whole(stub: Stub, program: Any) -> None:
    stub.replies = ["Hello, world"]
    state = program.run(backend=made(stub, is_chat_model=None), stream=True)
    assert "".join(state.text_iter("a")) == state["a"] == "Hello, world"
    assert stub.bodies[0]["stream"] is True
    assert state.get_meta_info("a")["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_one_field_says_the_limit(stub: Stub, stream: bool) -> None:
    """OpenAI's own API gets `max_completion_tokens`, other servers `max_tokens`; none gets both."""
    ask.run(backend=made(stub), stream=stream).sync()
    assert ("max_tokens" in stub.bodies[0], "max_completion_tokens" in stub.bodies[0]) == (True, False)
    official = OpenAI("gpt-x", api_key=KEY)
    fields = official._adapter._chat_fields({}, ModelRequest(SamplingParams(), max_tokens=5))  # type: ignore[attr-defined]
    assert ("max_tokens" in fields, "max_completion_tokens" in fields) == (False, True)
    official.shutdown()


def test_more_stops_than_the_api_takes_are_cut_here(stub: Stub) -> None:
    stub.replies = ["one two. three"]
    stops = ["a1", "a2", "a3", "a4", ". "]
    for stream in (False, True):
        state = ask.run(stop=stops, backend=made(stub), stream=stream)
        assert "".join(state.text_iter("a")) == state["a"] == "one two"
    assert stub.bodies[0]["stop"] == stops[:4]


SCHEMA = (
    '{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}'
)


@pytest.mark.parametrize(
    ("given", "reply", "value"),
    [
        ({"json_schema": SCHEMA}, '{"x": 3}', '{"x": 3}'),
        ({"json_schema": '{"type": "array", "items": {"type": "integer"}}'}, '{"value": [1, 2]}', "[1, 2]"),
        ({"dtype": int}, '{"value": -7}', "-7"),
        ({"dtype": float}, '{"value": 0.5}', "0.5"),
        ({"dtype": bool}, '{"value": true}', "True"),
        ({"dtype": str}, '{"value": "a b"}', '"a b"'),
        ({"type": int}, '{"value": -7}', -7),
        ({"type": float}, '{"value": 2}', 2.0),
        ({"type": bool}, '{"value": true}', True),
        ({"type": list[int]}, '{"value": [1, 2]}', [1, 2]),
        ({"type": Literal["a", 2]}, '{"value": "2"}', 2),
    ],
)
def test_a_form_goes_as_a_strict_response_format(stub: Stub, given: dict[str, Any], reply: str, value: Any) -> None:
    stub.replies = [reply]
    assert ask.run(backend=made(stub), **given)["a"] == value
    wanted = stub.bodies[0]["response_format"]
    assert (wanted["type"], wanted["json_schema"]["strict"]) == ("json_schema", True)
    assert wanted["json_schema"]["schema"]["type"] == "object"
    assert "stop" not in stub.bodies[0]


def test_what_comes_back_is_checked_and_asked_for_again(stub: Stub) -> None:
    stub.replies = ['{"x": "three"}', "no JSON", '{"x": 3}']
    state = ask.run(json_schema=SCHEMA, backend=made(stub))
    assert state["a"] == '{"x": 3}'
    assert state.get_meta_info("a")["requests"] == 3
    assert state.get_meta_info("a")["prompt_tokens"] == 6
    stub.replies = ['{"x": "three"}']
    with pytest.raises(InvalidReplyError, match=r'the value\.x is "three", expected integer.*so were 3 answers'):
        ask.run(json_schema=SCHEMA, backend=made(stub))


def test_an_answer_of_a_form_that_was_cut(stub: Stub) -> None:
    stub.replies = [Cut('{"x": ')]
    with pytest.raises(TruncatedError):
        ask.run(json_schema=SCHEMA, backend=made(stub))
    with pytest.raises(ExecutionError, match="128 tokens cut it in the middle; give a higher max_tokens"):
        ask.run(dtype=int, backend=made(stub))


def test_select_is_an_enum_in_turns_and_scores_on_text(stub: Stub) -> None:
    @function
    def pick(s: ProgramState) -> None:
        s += user("Q") + assistant(select("c", ["yes", "no"]))

    @function
    def pick_text(s: ProgramState) -> None:
        s += "It is" + select("c", [" cold", " warm"])

    stub.replies = ['{"value": "maybe"}', '{"value": "no"}']
    assert pick.run(backend=made(stub))["c"] == "no"
    assert stub.bodies[0]["response_format"]["json_schema"]["schema"]["properties"]["value"]["enum"] == ["yes", "no"]
    with hosted_stub(" warm", owned_by="sglang_lite") as own:
        state = pick_text.run(backend=made(own, is_chat_model=None))
        assert state["c"] == " warm"
        means = state.get_meta_info("c")["normalized_prompt_logprobs"]
        assert means == pytest.approx([-3.0 * 4 / 5 - 0.1 / 5, -0.1])
        assert (own.bodies[0]["echo"], own.bodies[0]["max_tokens"]) == (True, 0)
        assert own.bodies[0]["prompt"] == ["It is cold", "It is warm"]


def test_a_server_of_sglangs_kind_takes_what_sglang_takes() -> None:
    with hosted_stub("ab", owned_by="sglang_lite") as own:
        backend = made(own, is_chat_model=None)
        tell.run(regex="[ab]+", stop_token_ids=[5], min_tokens=1, backend=backend, top_k=3, ignore_eos=True)
        body = own.bodies[0]
        assert {name: body[name] for name in ("regex", "stop_token_ids", "min_tokens", "top_k", "ignore_eos")} == {
            "regex": "[ab]+", "stop_token_ids": [5], "min_tokens": 1, "top_k": 3, "ignore_eos": True,
        }  # fmt: skip

        @function
        def begun(s: ProgramState) -> None:
            s += user("Q") + assistant("So: " + gen("a"))

        begun.run(backend=backend)
        assert own.bodies[1]["continue_final_message"] is True
        assert own.bodies[1]["messages"][-1] == {"role": "assistant", "content": "So: "}


REFUSED = [
    {"regex": "[a-z]+"},
    {"top_k": 5},
    {"min_p": 0.1},
    {"ignore_eos": True},
    {"min_tokens": 3},
    {"stop_token_ids": [1]},
    {"stop_regex": "a+"},
    {"return_logprob": True, "logprob_start_len": 0},
]


@pytest.mark.parametrize("given", REFUSED, ids=lambda given: next(iter(given)))
def test_what_the_api_lacks_is_refused_before_it_is_called(stub: Stub, given: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"is not possible there; use .*, or run on 'local'"):
        ask.run(backend=made(stub), **given)
    assert stub.requests == []


def test_places_where_a_chat_cannot_generate_are_refused(stub: Stub) -> None:
    @function
    def outside(s: ProgramState) -> None:
        s += "text" + gen("a")

    @function
    def in_the_users(s: ProgramState) -> None:
        s += user("Q" + gen("a"))

    @function
    def begun(s: ProgramState) -> None:
        s += user("Q") + assistant("So: " + gen("a"))

    @function
    def second(s: ProgramState) -> None:
        s += user("Q") + assistant(gen("a") + " and " + gen("b"))

    @function
    def mixed(s: ProgramState) -> None:
        s += "text" + user("Q") + assistant(gen("a"))

    for program in (outside, in_the_users, begun, second, mixed):
        with pytest.raises(UnsupportedError, match=r"use (turns|a turn of its own)"):
            program.run(backend=made(stub))
    assert stub.requests == []


def test_log_probabilities_come_along(stub: Stub) -> None:
    state = ask.run(return_logprob=True, top_logprobs_num=2, backend=made(stub))
    assert (stub.bodies[0]["logprobs"], stub.bodies[0]["top_logprobs"]) == (True, 2)
    assert state.get_meta_info("a")["output_token_logprobs"] == [[-0.5, -1, "Hello"]]


def test_calls_are_made_again_where_that_may_help(stub: Stub) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    stub.replies = [Failure(429, headers={"Retry-After": "7"}), Failure(503), Failure(500), "Hello"]
    assert ask.run(backend=made(stub, policy=RetryPolicy(sleep=sleep)))["a"] == "Hello"
    assert waits == [7.0, 1.0, 2.0]
    assert len(stub.requests) == 4
    stub.replies = [Failure(429)]
    with pytest.raises(QueueFullError, match="HTTP 429"):
        ask.run(backend=made(stub, policy=RetryPolicy(2, sleep=sleep)))
    assert len(stub.requests) == 7


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "bad field", RequestError),
        (400, "context_length_exceeded", ContextLengthError),
        (401, "Incorrect API key provided: {key}", RequestError),
        (404, "no such model {key}", RequestError),
        (500, "broken {key}", ExecutionError),
    ],
)
def test_errors_say_what_happened_and_never_the_key(
    stub: Stub, status: int, message: str, kind: type[Exception]
) -> None:
    stub.replies = [Failure(status, message.format(key=KEY))]
    backend = made(stub, policy=RetryPolicy(0, sleep=no_sleep))
    with pytest.raises(kind, match=r"calling OpenAI\('gpt-x'") as caught:
        ask.run(backend=backend)
    shown = [str(caught.value), repr(caught.value), repr(backend), str(backend.get_server_info())]
    shown += traceback.format_exception(caught.value)
    assert not any(KEY in text or KEY[:12] in text for text in shown)
    assert len(stub.requests) == 1


def test_the_key_is_an_argument_or_a_variable(monkeypatch: pytest.MonkeyPatch, stub: Stub) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RequestError, match=r"there is no key; give api_key=\.\.\. or set OPENAI_API_KEY"):
        OpenAI("gpt-x")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-variable")
    ask.run(backend=from_string(f"gpt-x@{stub.url}/v1"))
    assert stub.requests[0][1]["authorization"] == "Bearer of-the-variable"
    with pytest.raises(RequestError, match="expected openai:MODEL"):
        from_string("")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(RequestError, match=r"pip install 'sglang-lite\[apis\]'"):
        OpenAI("gpt-x", api_key="k")
