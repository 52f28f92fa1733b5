"""LiteLLM through a module that stands in for it: it is not among what the tests need."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang import ProgramState, assistant, function, gen, select, user
from sglang_lite.lang.backends.hosted import LiteLLM
from sglang_lite.lang.backends.hosted.litellm_api import from_string
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from tests.lang.backends.hosted.support import ApiError, no_sleep


class FakeLiteLLM(ModuleType):
    def __init__(self) -> None:
        super().__init__("litellm")
        self.calls: list[dict[str, Any]] = []
        self.replies: list[Any] = ["Hello"]

    async def acompletion(self, **fields: Any) -> Any:
        self.calls.append(fields)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        usage = SimpleNamespace(prompt_tokens=3, completion_tokens=1, prompt_tokens_details=None)
        if fields.get("stream"):
            return self._stream(reply, usage)
        message = SimpleNamespace(content=reply, tool_calls=None)
        choices = [
            SimpleNamespace(index=i, message=message, finish_reason="stop", logprobs=None) for i in range(fields["n"])
        ]
        return SimpleNamespace(id="r", choices=choices, usage=usage)

    async def _stream(self, reply: str, usage: Any) -> Any:
        for letter in reply:
            delta = SimpleNamespace(content=letter, tool_calls=None)
            yield SimpleNamespace(choices=[SimpleNamespace(index=0, delta=delta, finish_reason=None)], usage=None)
        yield SimpleNamespace(id="r", choices=[], usage=usage)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> FakeLiteLLM:
    fake = FakeLiteLLM()
    monkeypatch.setitem(sys.modules, "litellm", fake)
    return fake


@function
def ask(s: ProgramState, **given: Any) -> None:
    s += user("Q") + assistant(gen("a", **given))


def test_a_call_has_what_was_asked_for_and_the_settings(module: FakeLiteLLM) -> None:
    backend = LiteLLM("groq/m", api_key="sk-secret12345", base_url="http://x", default_headers={"h": "v"})
    state = ask.run(stop="END", backend=backend, temperature=0.5)
    assert module.calls[0] == {
        "model": "groq/m", "messages": [{"role": "user", "content": "Q"}], "temperature": 0.5, "top_p": 1.0, "n": 1,
        "stop": ["END"], "max_tokens": 128, "api_key": "sk-secret12345", "base_url": "http://x", "timeout": 600,
        "extra_headers": {"h": "v"},
    }  # fmt: skip
    assert state["a"] == "Hello"
    assert state.get_meta_info("a")["prompt_tokens"] == 3
    assert "sk-secret12345" not in repr(backend)


def test_streams_forms_and_selects(module: FakeLiteLLM) -> None:
    @function
    def pick(s: ProgramState) -> None:
        s += user("Q") + assistant(select("c", ["x", "y"])) + user("n?") + assistant(gen("n", dtype=int))

    backend = LiteLLM("m")
    assert "".join(ask.run(backend=backend, stream=True).text_iter("a")) == "Hello"
    module.replies = ['{"value": "y"}', '{"value": 7}']
    state = pick.run(backend=backend)
    assert (state["c"], state["n"]) == ("y", "7")
    assert module.calls[1]["response_format"]["type"] == "json_schema"


def test_a_busy_api_is_called_again_and_keys_are_kept(module: FakeLiteLLM) -> None:
    module.replies = [ApiError(429), "Hello"]
    backend = LiteLLM("m", api_key="sk-secret12345", policy=RetryPolicy(sleep=no_sleep))
    assert ask.run(backend=backend)["a"] == "Hello"
    module.replies = [ApiError(400, "bad key sk-secret12345")]
    with pytest.raises(RequestError, match=r"LiteLLM\('m'\): HTTP 400: bad key \*\*\*"):
        ask.run(backend=backend)


def test_what_not_every_api_has_is_refused(module: FakeLiteLLM) -> None:
    for given in ({"regex": "a"}, {"top_k": 3}, {"return_logprob": True}):
        with pytest.raises(UnsupportedError):
            ask.run(backend=LiteLLM("m"), **given)
    assert module.calls == []


def test_the_package_and_the_model_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(RequestError, match=r"pip install 'sglang-lite\[apis\]'"):
        from_string("groq/m")
    with pytest.raises(RequestError, match="expected litellm:MODEL"):
        from_string("")
