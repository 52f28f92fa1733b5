"""A hosted API that is our own server: the same programs on a local engine, a server and an API, without an edit."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.lang.backends.registry import as_backend, shutdown_named_backends
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def real(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine, heartbeat_s=10.0) as server:  # programs take long silence for a lost connection
        yield server
        shutdown_named_backends()


def test_react_runs_on_a_local_engine_a_server_and_a_hosted_api(real: LiveServer, engine: Engine) -> None:
    agent = importlib.import_module("examples.agents.react")
    assert "openai" not in inspect.getsource(agent)
    questions = agent.QUESTIONS[1:3]
    here = agent.run(engine, questions)
    assert agent.run(real.url, questions) == here
    hosted = agent.run(f"openai:SmolLM2@{real.url}/v1", questions)
    assert [(one.question, one.tool) for one in hosted] == [(one.question, one.tool) for one in here]
    assert all(one.tool_input and one.answer for one in hosted)
    assert hosted[0].tool_input == here[0].tool_input


def test_a_chat_says_the_same_as_in_process(real: LiveServer, engine: Engine) -> None:
    @sgl.function
    def chat(s: sgl.ProgramState) -> None:
        s += sgl.system("Be short.") + sgl.user("Name a colour.")
        s += sgl.assistant(sgl.gen("a", max_tokens=8, temperature=0))
        s += sgl.user("A digit?") + sgl.assistant(sgl.gen("n", dtype=int, max_tokens=8, temperature=0))
        s += sgl.user("Yes or no?") + sgl.assistant(sgl.select("c", ["yes", "no"]))

    backend: Any = as_backend(f"openai:SmolLM2@{real.url}/v1")
    hosted, here = chat.run(backend=backend), chat.run(backend=engine)
    assert hosted["a"] == here["a"]
    assert hosted.get_meta_info("a")["prompt_tokens"] == here.get_meta_info("a")["prompt_tokens"]
    assert int(hosted["n"]) is not None
    assert hosted["c"] in ("yes", "no")
    assert backend.abilities.scores


def test_scores_of_a_select_are_those_of_the_engine(real: LiveServer, engine: Engine) -> None:
    @sgl.function
    def capital(s: sgl.ProgramState) -> None:
        s += "The capital of France is" + sgl.select("c", [" Paris", " Antidisestablishmentarianism"])

    hosted, here = (capital.run(backend=b) for b in (f"openai:SmolLM2@{real.url}/v1", engine))
    assert hosted["c"] == here["c"]
    name = "normalized_prompt_logprobs"
    assert hosted.get_meta_info("c")[name] == pytest.approx(here.get_meta_info("c")[name], abs=1e-3)
