"""Anthropic's messages through its own client, against a stub that speaks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sglang_lite.errors import ExecutionError, RequestError, UnsupportedError
from sglang_lite.lang import ProgramState, assistant, function, gen, select, system, user
from sglang_lite.lang.backends.hosted import Anthropic
from sglang_lite.lang.backends.hosted.anthropic_api import from_string
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.request_tree import CountOp, RoleBeginOp, TextOp
from tests.lang.backends.hosted.support import no_sleep
from tests.lang.backends.hosted.test_program import Ran
from tests.support.hosted_stub import Failure, Stub, hosted_stub

KEY = "sk-ant-verysecretkey0123456789"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with hosted_stub("Hello") as made:
        yield made


def made(stub: Stub, **more: Any) -> Anthropic:
    arguments: dict[str, Any] = {"api_key": KEY, "policy": RetryPolicy(sleep=no_sleep), **more}
    return Anthropic("claude-x", base_url=stub.url, **arguments)


@function
def ask(s: ProgramState, **given: Any) -> None:
    s += system("S") + user("Q") + assistant(gen("a", **given)) + user("R") + assistant(gen("b"))


def test_messages_with_the_system_text_apart_in_every_call(stub: Stub) -> None:
    """Pitfall 13: the second call has the system text, too, and the program keeps it."""
    state = ask.run(stop=["END", "\n"], max_tokens=9, backend=made(stub), temperature=0.3, top_k=4)
    assert [body["system"] for body in stub.bodies] == ["S", "S"]
    assert stub.bodies[0] == {
        "model": "claude-x",
        "messages": [{"role": "user", "content": "Q"}],
        "system": "S",
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "temperature": 0.3,
        "top_k": 4,
    }
    assert stub.bodies[1]["messages"][1] == {"role": "assistant", "content": "Hello"}
    assert KEY in "".join(stub.requests[0][1].get(name, "") for name in ("x-api-key", "authorization"))
    assert state.messages()[0] == {"role": "system", "content": "S"}
    meta = state.get_meta_info("a")
    assert (meta["prompt_tokens"], meta["cached_tokens"], meta["completion_tokens"]) == (7, 2, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_of_white_space_is_cut_here(stub: Stub, stream: bool) -> None:
    """The API takes no such stop."""
    stub.replies = ["one\ntwo"]
    state = ask.run(stop="\n", backend=made(stub), stream=stream)
    assert "".join(state.text_iter("a")) == state["a"] == "one"
    assert "stop_sequences" not in stub.bodies[0]


def test_forms_and_selects_are_a_tool_that_must_be_called(stub: Stub) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("n?") + assistant(gen("n", dtype=int)) + user("c?") + assistant(select("c", ["yes", "no"]))

    stub.replies = ['{"value": "no number"}', '{"value": 42}', '{"value": "no"}']
    state = f.run(backend=made(stub))
    assert (state["n"], state["c"]) == ("42", "no")
    assert stub.bodies[0]["tool_choice"] == {"type": "tool", "name": "answer"}
    assert stub.bodies[0]["tools"][0]["input_schema"]["properties"] == {"value": {"type": "integer"}}
    assert stub.bodies[2]["tools"][0]["input_schema"]["properties"]["value"]["enum"] == ["yes", "no"]


def test_n_answers_are_n_calls(stub: Stub) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("Q") + assistant(gen("a", n=3))

    stub.replies = ["x", "y", "z", "z"]
    state = f.run(backend=made(stub))
    assert sorted(state["a"]) == ["x", "y", "z"]
    assert state.get_meta_info("a")["requests"] == 3
    assert state.get_meta_info("a")["prompt_tokens"] == 21


def test_a_turn_that_has_begun_goes_on_where_the_model_can(stub: Stub) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("Q") + assistant("So: " + gen("a"))

    with pytest.raises(UnsupportedError, match="in a turn that has begun is not possible"):
        f.run(backend=made(stub))
    assert stub.requests == []
    f.run(backend=made(stub, continues_turns=True))
    assert stub.bodies[0]["messages"][-1] == {"role": "assistant", "content": "So: "}


@pytest.mark.parametrize(
    "given", [{"temperature": 1.5}, {"frequency_penalty": 1.0}, {"return_logprob": True}, {"regex": "a"}]
)
def test_what_the_api_lacks_is_refused_before_it_is_called(stub: Stub, given: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="is not possible there; use"):
        ask.run(backend=made(stub), **given)
    assert stub.requests == []


def test_the_api_counts_tokens(stub: Stub) -> None:
    run = Ran(made(stub))
    run.program.append([RoleBeginOp(0, 0, "user"), TextOp(1, 0, "one two three"), CountOp(2, 0)])
    assert run.wait(2).meta["num_tokens"] == 3


def test_errors_never_say_the_key(stub: Stub) -> None:
    stub.replies = [Failure(500, f"broken {KEY}"), Failure(529, f"overloaded {KEY}")]
    with pytest.raises(ExecutionError, match="HTTP 529") as caught:
        ask.run(backend=made(stub, policy=RetryPolicy(1, sleep=no_sleep)))
    assert KEY not in str(caught.value)
    assert len(stub.requests) == 2


def test_the_key_is_an_argument_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(RequestError, match="set ANTHROPIC_API_KEY"):
        from_string("claude-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert repr(from_string("claude-x")) == "Anthropic('claude-x')"
    with pytest.raises(RequestError, match="expected anthropic:MODEL"):
        from_string("")
