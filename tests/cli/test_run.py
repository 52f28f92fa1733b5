"""The command as a user types it, in a process of its own, on canned replies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sglang_lite as sgl

@sgl.function
def ask(s, question, n=1):
    s += "Q: " + question + " A:"
    for i in range(n):
        s += sgl.gen("answer", max_tokens=8)
    s += sgl.select("sure", ["yes", "no"])
"""
MAIN = PROGRAM + "\ndef main():\n    print('main:', ask.run('Why?')['answer'])\n"
SCRIPT = MAIN + "\nprint('script', ask.run('How?')['sure'])\n"


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sglang_lite.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=text, check=False)


@pytest.fixture
def replies(tmp_path: Path) -> str:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps({"answer": "Because.", "sure": "no", "reply": "Hello."}))
    return f"scripted:{path}"


def test_a_function_runs_with_its_arguments_and_its_variables_are_json(tmp_path: Path, replies: str) -> None:
    """Also where a parameter has the name of one of `run`'s own (`n`)."""
    path = tmp_path / "quiz.py"
    path.write_text(PROGRAM)
    done = run("run", f"{path}:ask", "--arg", "question=Why?", "--arg", "n=2", "--backend", replies)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"answer": "Because.", "sure": "no"}
    assert done.stderr.startswith("3 requests; prompt tokens:")


def test_main_runs_where_there_is_one(tmp_path: Path, replies: str) -> None:
    path = tmp_path / "quiz.py"
    path.write_text(MAIN)
    done = run("run", str(path), "--backend", replies)
    assert (done.returncode, done.stdout) == (0, "main: Because.\n"), done.stderr


def test_a_script_runs_as_python_would_run_it(tmp_path: Path, replies: str) -> None:
    path = tmp_path / "quiz.py"
    path.write_text(SCRIPT + "import sys\nprint(__name__, sys.argv[1:])\n")
    done = run("run", str(path), "--backend", replies, "--", "more", "--even")
    assert (done.returncode, done.stdout) == (0, "script no\n__main__ ['more', '--even']\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.py"], "RequestError: running nowhere.py: no file 'nowhere.py'"),
        (["run", "{path}:tell"], "no such @function, the file has ['ask']"),
        (["run", "{path}:ask"], "missing ['question']"),
        (["run", "{path}:ask", "--arg", "question"], "expected name=value"),
        (["run", "{path}:ask", "--arg", "question=x", "--backend", "scripted:nowhere.json"], "nowhere.json"),
        (["run", "--arg", "x=1"], "running the demo: it takes no --arg"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_1(tmp_path: Path, arguments: list[str], words: str) -> None:
    path = tmp_path / "quiz.py"
    path.write_text(PROGRAM)
    done = run(*(argument.format(path=path) for argument in arguments))
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_program_has_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "quiz.py"
    path.write_text(PROGRAM)
    replies = tmp_path / "few.json"
    replies.write_text('{"answer": "x"}')
    done = run("run", f"{path}:ask", "--arg", "question=x", "--backend", f"scripted:{replies}")
    assert done.returncode == 1
    assert "no reply for this name" in done.stderr


def test_chat_answers_line_by_line_until_quit(replies: str) -> None:
    done = run("chat", "--system", "Be brief.", "--backend", replies, text="Hi\n\n/reset\nAgain\n/quit\nnever read\n")
    assert (done.returncode, done.stdout) == (0, "Hello.\nHello.\n"), done.stderr
    assert "2 requests" in done.stderr


def test_rows_of_a_file_run_and_resume(tmp_path: Path) -> None:
    program, rows, out = tmp_path / "ask.py", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    program.write_text(
        "from sglang_lite import function, gen\n\n@function\ndef ask(s, q, n):\n    s += q * n + gen('x')\n",
        encoding="utf-8",
    )
    rows.write_text('{"q": "a"}\n\n{"q": "b", "n": 2}\n', encoding="utf-8")
    command = ["run", f"{program}:ask", "--rows", str(rows), "--out", str(out), "--backend", "scripted"]
    assert run(*command, "--ordered", "--arg", "n=1").returncode == 0
    entries = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [entry["arguments"] for entry in entries] == [{"n": 1, "q": "a"}, {"n": 2, "q": "b"}]
    resumed = run(*command, "--resume", "--arg", "n=1")
    assert resumed.returncode == 0
    assert "0 rows written, 0 failed, 2 there already" in resumed.stderr
    assert "the file exists" in run(*command).stderr
    rows.write_text("[1]\n", encoding="utf-8")
    wrong = run(*command, "--resume")
    assert wrong.returncode == 1
    assert "line 1" in wrong.stderr


def test_rows_need_a_place_for_their_results(tmp_path: Path) -> None:
    assert "both --rows" in run("run", str(tmp_path / "ask.py"), "--rows", "in.jsonl").stderr
