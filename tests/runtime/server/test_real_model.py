"""The server over the embedded model: the same words as in process, numbers of transformers, agents unchanged."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import openai
import pytest
import torch

import sglang_lite as sgl
from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import peer_logprobs
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def real(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine, heartbeat_s=10.0) as server:  # programs take long silence for a lost connection
        yield server


@pytest.fixture(scope="module")
def client(real: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_an_agent_on_a_server_answers_as_in_process(real: LiveServer, engine: Engine) -> None:
    """Greedy: a ReAct agent with tools, constraints and selects, unchanged."""
    agent = importlib.import_module("examples.agents.react")
    here = agent.run(engine, agent.QUESTIONS[1:2])
    backend = sgl.RuntimeEndpoint(real.url)
    assert agent.run(backend, agent.QUESTIONS[1:2]) == here
    backend.shutdown()


def test_the_chat_prompt_is_that_of_the_models_template(client: openai.OpenAI, engine: Engine) -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    done = client.chat.completions.create(model="m", messages=messages, max_tokens=8, temperature=0)  # type: ignore[call-overload]
    prompt = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    reply = engine.generate(prompt, {"max_new_tokens": 8, "temperature": 0})
    assert isinstance(reply, dict)
    assert done.choices[0].message.content == reply["text"]
    assert done.usage.prompt_tokens == len(engine.tokenizer.encode(prompt, parse_special=True))

    @sgl.function
    def program(s: sgl.ProgramState) -> None:
        s += sgl.system("Be short.")
        s += sgl.user("Hi")
        s += sgl.assistant(sgl.gen("a", max_tokens=8, temperature=0))

    state = program.run(backend=engine)
    assert state["a"] == reply["text"]
    assert state.get_meta_info("a")["prompt_tokens"] == done.usage.prompt_tokens


def test_scoring_a_prompt_gives_the_numbers_of_transformers(client: openai.OpenAI, engine: Engine) -> None:
    text = "The step of boiling water is:"
    done = client.completions.create(model="m", prompt=text, echo=True, logprobs=3, max_tokens=1, temperature=0)
    logprobs = done.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or ()) == done.choices[0].text
    ids = engine.tokenizer.encode(text, parse_special=True)
    expected = peer_logprobs(ids)
    values = logprobs.token_logprobs or []
    assert values[0] is None
    picked = expected[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].tolist()
    assert values[1 : len(ids)] == pytest.approx(picked, abs=1e-3)
    assert values[len(ids)] == pytest.approx(float(expected[-1].max()), abs=1e-3)


def test_a_stream_equals_the_whole(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Count to three."}]
    asked = {"model": "m", "messages": messages, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
    stream = client.chat.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole.choices[0].message.content


CITIES = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "Weather in a city.", "parameters": CITIES}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_has_arguments_of_its_schema(client: openai.OpenAI, choice: Any) -> None:
    """The embedded model's template knows no tools; it is told of them, and held to them. A stream equals the whole."""
    asked = {
        "model": "m",
        "messages": [{"role": "user", "content": "What will the weather be in Rome for the next three days?"}],
        "tools": [{"type": "function", "function": WEATHER}],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 60,
    }
    whole = client.chat.completions.create(**asked).choices[0]  # type: ignore[call-overload]
    (call,) = whole.message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), CITIES)
    assert (whole.finish_reason, whole.message.content, call.function.name) == ("tool_calls", None, "get_weather")
    arguments = ""
    for chunk in client.chat.completions.create(**asked, stream=True):  # type: ignore[call-overload]
        for piece in chunk.choices[0].delta.tool_calls or []:
            arguments += piece.function.arguments or ""
    assert arguments == call.function.arguments


def test_a_schema_holds_the_model_in_all_three_apis(client: openai.OpenAI, real: LiveServer) -> None:
    messages = [{"role": "user", "content": "A city and some days."}]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITIES, "strict": True}}
    chat = client.chat.completions.create(model="m", messages=messages, response_format=form, max_tokens=60)  # type: ignore[call-overload]
    jsonschema.validate(json.loads(chat.choices[0].message.content), CITIES)
    text = {"format": {"type": "json_schema", "name": "n", "schema": CITIES, "strict": True}}
    response = client.responses.create(model="m", input="A city and some days.", text=text, max_output_tokens=60)  # type: ignore[arg-type]
    jsonschema.validate(json.loads(response.output_text), CITIES)
    with anthropic.Anthropic(base_url=real.url, api_key="none", max_retries=0) as other:
        tool = {"name": "get_weather", "input_schema": CITIES}
        message = other.messages.create(  # type: ignore[call-overload]
            model="m", messages=messages, tools=[tool], tool_choice={"type": "any"}, max_tokens=60
        )
        assert message.stop_reason in ("tool_use", "max_tokens")
        jsonschema.validate(message.content[0].input, CITIES)
