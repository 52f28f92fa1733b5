from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from sglang_lite.request_tree import RequestTree

QUIZ = """
import sglang_lite as sgl

@sgl.function
def hint(s, topic):
    s += topic + sgl.gen("hint", max_tokens=4)

@sgl.function
def quiz(s, question, ways=2):
    s += sgl.user(question)
    with s.assistant():
        s += sgl.gen("digits", regex=REGEX, max_tokens=4)
    for fork in s.fork(ways):
        fork += "so " + sgl.select("ok", ["yes", "no"])
    h = hint.run(topic="hm")
    s += h["hint"]

@sgl.function
def asks(s, question):
    s += "Q: "
    s += f"{question}"
"""


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    path = tmp_path / "a_quiz.py"
    path.write_text(QUIZ.replace("REGEX", repr("[0-9]+")), encoding="utf-8")
    return path


def test_the_tree_is_printed_with_forks_and_the_programs_inside(quiz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", f"{quiz}:quiz"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "quiz:"
    assert "  1 arg question" in shown
    assert shown.count("select ok of 'yes, no'") == 2  # the default of `ways`
    assert "hint:\n  0 text 'hm'\n  1 gen hint (max_new_tokens=4)" in shown
    assert "open:" not in shown


def test_arguments_are_values_in_the_tree(quiz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", f"{quiz}:quiz", "--arg", "question=Why?", "--arg", "ways=3"]) == 0
    shown = capsys.readouterr().out
    assert "text 'Why?'" in shown
    assert shown.count("select ok") == 3


def test_an_open_tree_says_where_and_why(quiz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", f"{quiz}:asks"]) == 0
    line = QUIZ.splitlines().index('    s += f"{question}"') + 1
    assert f"open: {quiz}:{line}: formatting the argument 'question'" in capsys.readouterr().out


def test_json_holds_the_tree_as_it_travels(quiz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", f"{quiz}:quiz", "--json", "--backend", "scripted"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["program"], data["open_because"]) == ("quiz", None)
    assert len(RequestTree.from_json(data["tree"]).ops) > 10
    assert data["nested"][0]["program"] == "hint"
    assert [found["severity"] for found in data["findings"]] == ["info", "info"]


def test_findings_are_printed_and_an_error_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b_quiz.py"
    broken = QUIZ.replace("regex=REGEX", "json_schema='false'")
    path.write_text(broken, encoding="utf-8")
    assert main(["tree", f"{path}:quiz", "--check", "--backend", "scripted"]) == 1
    shown = capsys.readouterr().out
    assert "error: gen 'digits'" in shown
    assert "info: hint: 1 words of text" in shown


def test_wrong_targets_and_arguments_are_one_clear_line(quiz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(quiz)], "3 @functions"),
        ([f"{quiz}:nothing"], "no such @function"),
        ([f"{quiz}:asks", "--arg", "z=1"], "unknown ['z']"),
        ([f"{quiz}:asks", "--arg", "z"], "expected name=value"),
    ):
        assert main(["tree", *arguments]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
