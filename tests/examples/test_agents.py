"""Every agent runs on canned replies with a known result, and on the real model with a known structure."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from examples.agents.debate import OPENINGS, PETS, Debate, Speech
from examples.agents.few_shot_select import MESSAGES, Classified
from examples.agents.generative_agents import MOODS, PLACES, TIMES, Episode, PartOfDay
from examples.agents.json_extraction import NOTICES, Notice, Reading
from examples.agents.json_fields import ADVERTS, COLOURS, Advert
from examples.agents.judge import DIMENSIONS, Review, Verdict
from examples.agents.long_chat import TURNS, Turn
from examples.agents.react import DOCUMENTS, QUESTIONS, Answer, calculate, search
from examples.agents.react_replay import RECORDS, Replayed
from examples.agents.reflexion import PUZZLES, Try
from examples.agents.self_consistency import QUESTIONS as PROBLEMS
from examples.agents.self_consistency import Vote
from examples.agents.skeleton_of_thought import NUM_POINTS, Point
from examples.agents.tool_agent import LEFT, ORDERS, PRICES, Served
from examples.agents.tree_of_thought import STEPS, Result

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "examples" / "agents"

LONG_ANSWER = "I answer" + " with many words" * 6 + " and care."

EXPECTED: dict[str, Any] = {
    "react": [
        Answer(QUESTIONS[0], "search", "Mount Kenya", "5199"),
        Answer(QUESTIONS[1], "calculate", "23 * 17", "391"),
        Answer(QUESTIONS[2], "search", "Octopus", "8"),
        Answer(QUESTIONS[3], "calculate", "512 - 498", "14"),
        Answer(QUESTIONS[4], "search", "Eiffel Tower", "330"),
        Answer(QUESTIONS[5], "search", "Lake Baikal", "1642"),
    ],
    "tool_agent": [
        Served(ORDERS[0], (("soup", 1),), ({"total": 6},), "That is 6 euros."),
        Served(ORDERS[1], (("cake", 2),), ({"total": 8},), "That is 8 euros."),
        Served(
            ORDERS[2], (("pasta", 1),), ({"error": "ValueError: only 0 pasta left"},), "I am sorry, there is none left."
        ),
    ],
    "react_replay": [
        Replayed(
            record["question"],
            tuple(f"This is step {n}.\nAction {n}: search" for n in range(1, len(record["steps"]) + 1)),
            0.0,
        )
        for record in RECORDS
    ],
    "debate": Debate(
        (
            Speech("Ann", "Cats are good company on every day."),
            Speech("Ben", "Dogs are good company on every day."),
            Speech("Ann", "Cats love to be with their people."),
            Speech("Ben", "Dogs love to be with their people."),
            Speech("Ann", "Cats never ask where you were."),
            Speech("Ben", "Dogs never ask where you were."),
        ),
        {"Ann": 0.5, "Ben": 0.5},
        "Ann",
    ),
    "few_shot_select": [
        Classified(MESSAGES[0][0], "complaint", 0.55, "complaint"),
        Classified(MESSAGES[1][0], "question", 0.55, "question"),
        Classified(MESSAGES[2][0], "praise", 0.55, "praise"),
        Classified(MESSAGES[3][0], "question", 0.55, "question"),
        Classified(MESSAGES[4][0], "complaint", 0.55, "complaint"),
        Classified(MESSAGES[5][0], "praise", 0.55, "praise"),
        Classified(MESSAGES[6][0], "question", 0.55, "question"),
        Classified(MESSAGES[7][0], "complaint", 0.55, "complaint"),
        Classified(MESSAGES[8][0], "complaint", 0.55, "praise"),
        Classified(MESSAGES[9][0], "question", 0.55, "question"),
    ],
    "generative_agents": (
        PartOfDay(
            "morning",
            (Episode("Rosa", "bakery", "works hard.", "hard"), Episode("Emil", "harbour", "works hard.", "hard")),
            (),
        ),
        PartOfDay(
            "afternoon",
            (Episode("Rosa", "market", "works hard.", "hard"), Episode("Emil", "bakery", "works hard.", "hard")),
            (),
        ),
        PartOfDay(
            "evening",
            (Episode("Rosa", "inn", "sings a song.", "funny"), Episode("Emil", "inn", "sings a song.", "funny")),
            ('Rosa says: "What a day!"', 'Emil says: "It was long."'),
        ),
    ),
    "json_extraction": [
        Reading(NOTICES[0], Notice("the choir sings", "Friday", 19, 5), 1, None),
        Reading(NOTICES[1], Notice("tales for children", "Monday", 15), 2, None),
        Reading(NOTICES[2], None, None, "the notice does not say 9 o'clock"),
    ],
    "json_fields": [
        Advert("bicycle", "red", 120, "Clara", "Lyon"),
        Advert("piano", "black", 900, "Peter", "Berlin"),
        Advert("table", "brown", 45, "Maria", "Porto"),
    ],
    "judge": Verdict(
        (
            Review("clarity", "is what one may expect of it.", 3.0),
            Review("structure", "is what one may expect of it.", 3.45),
            Review("evidence", "is what one may expect of it.", 3.0),
            Review("usefulness", "is what one may expect of it.", 3.0),
        ),
        "is good but short.",
        3.0,
    ),
    "long_chat": (
        Turn(TURNS[0], LONG_ANSWER, 43, None),
        Turn(TURNS[1], LONG_ANSWER, 71, None),
        Turn(TURNS[2], LONG_ANSWER, 102, None),
        Turn(TURNS[3], LONG_ANSWER, 130, None),
        Turn(TURNS[4], LONG_ANSWER, 159, "You want a garden and asked 5 questions."),
        Turn(TURNS[5], LONG_ANSWER, 50, None),
    ),
    "reflexion": [
        [Try("The Storm Speaks", (), None)],
        [
            Try(
                "Nobody Is Home",
                ("it has 3 words, not 4", 'the word "key" is missing'),
                "read the rules again",
            ),
            Try("The Key Is Gone", (), None),
        ],
        [
            *[Try("Cold Morning", ("it has 2 words, not 3", 'the word "snow" is missing'), "read the rules again")] * 2,
            Try("Cold Morning", ("it has 2 words, not 3", 'the word "snow" is missing'), None),
        ],
    ],
    "self_consistency": [
        Vote(PROBLEMS[0][0], "9", 9, ("9",) * 9, "9"),
        Vote(PROBLEMS[1][0], "14", 9, ("14",) * 9, "2"),
        Vote(PROBLEMS[2][0], "9", 9, ("9",) * 9, "20"),
    ],
    "skeleton_of_thought": (
        Point("Go to bed early", "It helps many people to go to bed early."),
        Point("Read a dull book", "It helps many people to read a dull book."),
        Point("Keep the window open", "It helps many people to keep the window open."),
    ),
    "tree_of_thought": "checked by structure",
}


def check_react_replay(result: list[Replayed]) -> None:
    assert [replayed.question for replayed in result] == [record["question"] for record in RECORDS]
    for replayed, record in zip(result, RECORDS, strict=True):
        assert len(replayed.proposals) == len(record["steps"])
        assert all("Observation" not in proposal for proposal in replayed.proposals)
        assert 0 <= replayed.reused < 1


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


def check_self_consistency(result: list[Vote]) -> None:
    assert [(vote.question, vote.solution) for vote in result] == list(PROBLEMS)
    for vote in result:
        assert len(vote.chains) == 9
        assert all(re.fullmatch("[0-9]{1,3}", answer) for answer in vote.chains)
        assert vote.num_votes == vote.chains.count(vote.answer) == max(map(vote.chains.count, vote.chains))


def check_judge(result: Verdict) -> None:
    assert [review.dimension for review in result.reviews] == list(DIMENSIONS)
    assert all(1 < grade < 5 for grade in (*(review.grade for review in result.reviews), result.overall))
    assert all(review.remark for review in result.reviews)
    assert result.verdict


def check_debate(result: Debate) -> None:
    assert [speech.speaker for speech in result.speeches] == list(PETS) * len(OPENINGS)
    assert all(speech.text.startswith(PETS[speech.speaker].capitalize()) for speech in result.speeches)
    assert sum(result.shares.values()) == pytest.approx(1, abs=0.02)
    assert result.shares[result.winner] == max(result.shares.values())


def check_skeleton_of_thought(result: tuple[Point, ...]) -> None:
    assert len(result) == NUM_POINTS
    assert all(re.fullmatch("[A-Z][a-z]+( [a-z]+)+", point.tip) for point in result)
    assert all(point.sentence[0].isupper() for point in result)


def check_few_shot_select(result: list[Classified]) -> None:
    assert [(found.message, found.expected) for found in result] == list(MESSAGES)
    assert all(found.label in ("complaint", "praise", "question") for found in result)
    assert all(0 < found.confidence < 1 for found in result)
    assert sum(found.label == found.expected for found in result) > len(result) / 2


def check_json_fields(result: list[Advert]) -> None:
    assert len(result) == len(ADVERTS)
    for advert in result:
        assert all((advert.item, advert.seller, advert.town))
        assert advert.colour in COLOURS
        assert isinstance(advert.price, int)


def check_json_extraction(result: list[Reading]) -> None:
    assert [reading.text for reading in result] == list(NOTICES)
    for reading in result:
        assert (reading.notice is None) == (reading.problem is not None)
        if reading.notice is not None:
            assert isinstance(reading.notice, Notice)
            assert f" {reading.notice.hour} o'clock" in reading.text
            assert reading.num_tries in range(1, 5)


def check_reflexion(result: list[list[Try]]) -> None:
    assert len(result) == len(PUZZLES)
    for tries in result:
        assert 1 <= len(tries) <= 3
        assert all(one.title and one.faults and one.lesson is not None for one in tries[:-1])
        assert tries[-1].title
        assert tries[-1].lesson is None
        assert tries[-1].faults == () or len(tries) == 3


def check_long_chat(result: tuple[Turn, ...]) -> None:
    assert [turn.question for turn in result] == list(TURNS)
    assert all(turn.answer for turn in result)
    assert any(turn.summary for turn in result[:-1])
    for turn, following in pairwise(result):
        assert (turn.num_tokens > 150) == (turn.summary is not None) == (following.num_tokens < turn.num_tokens)


def check_generative_agents(result: tuple[PartOfDay, ...]) -> None:
    assert [part.time for part in result] == list(TIMES)
    for part in result:
        assert [episode.name for episode in part.episodes] == ["Rosa", "Emil"]
        places = [episode.place for episode in part.episodes]
        assert set(places) <= {place.strip() for place in PLACES}
        assert {episode.mood for episode in part.episodes} <= {mood.strip() for mood in MOODS}
        assert all(episode.activity for episode in part.episodes)
        assert [line.split(" says: ")[0] for line in part.talk] == (["Rosa", "Emil"] if len(set(places)) == 1 else [])
    for before, after in pairwise(result):
        assert all(old.place != new.place for old, new in zip(before.episodes, after.episodes, strict=True))


def check_tool_agent(result: list[Served]) -> None:
    assert [served.wish for served in result] == list(ORDERS)
    for served in result:
        assert served.calls, "a call is required"
        assert len(served.calls) == len(served.results)
        for (dish, count), outcome in zip(served.calls, served.results, strict=True):
            fits = count <= LEFT[dish]
            assert outcome == (
                {"total": PRICES[dish] * count} if fits else {"error": f"ValueError: only {LEFT[dish]} {dish} left"}
            )
        assert isinstance(served.answer, str)


CHECKS: dict[str, Callable[[Any], None]] = {
    "debate": check_debate,
    "few_shot_select": check_few_shot_select,
    "generative_agents": check_generative_agents,
    "json_extraction": check_json_extraction,
    "json_fields": check_json_fields,
    "judge": check_judge,
    "long_chat": check_long_chat,
    "react": check_react,
    "react_replay": check_react_replay,
    "reflexion": check_reflexion,
    "self_consistency": check_self_consistency,
    "skeleton_of_thought": check_skeleton_of_thought,
    "tool_agent": check_tool_agent,
    "tree_of_thought": check_tree_of_thought,
}


def agent_names() -> list[str]:
    return sorted(path.stem for path in AGENTS.glob("*.py") if path.stem != "__init__")


def test_every_agent_has_its_expectations() -> None:
    assert agent_names() == sorted(EXPECTED) == sorted(CHECKS)


def test_every_agent_is_described_with_its_command() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\*\*(\w+)\*\*: ", page, re.M)) == agent_names()
    assert sorted(re.findall(r"^    python examples/agents/(\w+)\.py$", page, re.M)) == agent_names()


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
        [sys.executable, str(AGENTS / f"{name}.py"), "--backend", "scripted"],
        capture_output=True,
        text=True,
        check=False,
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
