"""Every agent runs on canned replies with a known result, and on the real model with a known structure."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from examples.agents.react import DOCUMENTS, QUESTIONS, Answer, calculate, search
from examples.agents.tree_of_thought import STEPS, Result

AGENTS = Path(__file__).parents[2] / "examples" / "agents"

EXPECTED: dict[str, Any] = {
    "react": [
        Answer(QUESTIONS[0], "search", "Mount Kenya", "5199"),
        Answer(QUESTIONS[1], "calculate", "23 * 17", "391"),
        Answer(QUESTIONS[2], "search", "Octopus", "8"),
        Answer(QUESTIONS[3], "calculate", "512 - 498", "14"),
        Answer(QUESTIONS[4], "search", "Eiffel Tower", "330"),
        Answer(QUESTIONS[5], "search", "Lake Baikal", "1642"),
    ],
    "tree_of_thought": "checked by structure",
}


def check_react(result: list[Answer]) -> None:
    assert [answer.question for answer in result] == list(QUESTIONS)
    for answer in result:
        assert answer.tool in ("calculate", "search")
        assert answer.answer
        if answer.tool == "calculate":
            assert calculate(answer.tool_input)


def check_tree_of_thought(result: Result) -> None:
    per_step = [[t for t in result.thoughts if t.step == step] for step in STEPS]
    assert [len(level) for level in per_step] == [3, 6, 6]
    for level in per_step:
        assert [t.is_kept for t in level] == [True, True] + [False] * (len(level) - 2)
        assert [t.score for t in level] == sorted((t.score for t in level), reverse=True)
        assert all(0 < t.score < 1 for t in level)
    assert len(result.story) == 3
    assert all(sentence in [t.text for t in level] for sentence, level in zip(result.story, per_step, strict=True))


CHECKS: dict[str, Callable[[Any], None]] = {"react": check_react, "tree_of_thought": check_tree_of_thought}


def agent_names() -> list[str]:
    return sorted(path.stem for path in AGENTS.glob("*.py") if path.stem != "__init__")


def test_every_agent_has_its_expectations() -> None:
    assert agent_names() == sorted(EXPECTED) == sorted(CHECKS)


@pytest.mark.parametrize("name", agent_names())
def test_an_agent_on_canned_replies(name: str) -> None:
    module = importlib.import_module(f"examples.agents.{name}")
    result = module.run(sgl.ScriptedBackend(module.script))
    CHECKS[name](result)
    if not isinstance(EXPECTED[name], str):
        assert result == EXPECTED[name]


@pytest.mark.parametrize("name", agent_names())
def test_an_agent_runs_as_a_script(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(AGENTS / f"{name}.py"), "--backend", "scripted"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


@pytest.mark.model
@pytest.mark.parametrize("name", agent_names())
def test_an_agent_on_the_real_model(name: str, engine: sgl.Engine) -> None:
    """The structure only: what the model says is its own."""
    module = importlib.import_module(f"examples.agents.{name}")
    engine.flush_cache()
    before = engine.get_server_info()["cached_tokens"]
    CHECKS[name](module.run(engine))
    assert engine.get_server_info()["cached_tokens"] > before


def test_the_tools_are_real() -> None:
    assert calculate("6 * 7") == "42"
    assert calculate("7 / 2") == "3.5"
    assert calculate("1 / 0") == "cannot divide by zero"
    assert search("how deep is baikal") == DOCUMENTS["Lake Baikal"]


def test_a_tree_on_canned_replies_keeps_what_the_judge_likes() -> None:
    module = importlib.import_module("examples.agents.tree_of_thought")
    result = module.run(sgl.ScriptedBackend(module.script))
    for step in STEPS:
        level = [t for t in result.thoughts if t.step == step]
        liked = [t for t in level if "odd" in t.text]
        assert all(t.score > 0.5 for t in liked)
        assert all(t.score < 0.5 for t in level if t not in liked)
