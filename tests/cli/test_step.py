"""The command that steps a program, as a user types it."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from sglang_lite.cli.step import Stepper
from sglang_lite.errors import UnsupportedError
from sglang_lite.request_tree import GenOp, OpFailed, SamplingParams, TextOp
from sglang_lite.runtime.scheduler.config import SchedulerConfig

PROGRAM = """
import sglang_lite as sgl

@sgl.function
def ask(s, question):
    s += question
    s += sgl.gen("answer", max_tokens=3, temperature=0)
"""


@pytest.mark.parametrize("overlap", [[], ["--overlap"]])
def test_the_built_in_program_is_stepped_to_its_end(overlap: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", "--page-size", "4", "--pages", "100", *overlap]) == 0
    text = capsys.readouterr().out
    steps = text.split("--- step ")[1:]
    assert len(steps) > 6
    assert all("ledger: every page and row has one owner" in step for step in steps)
    assert re.search(
        r"r\d+: (completed|running|fresh), seq \d+ \(prompt \d+\) kv \d+/\d+/\d+ tree \d+ locks \d+ row \d+ sent", text
    )
    assert "finished {'type': 'length'}" in text
    assert re.search(r"tree: .*'Two short thoughts.*pages \[\d.*locks [12] leases p0/", text)
    assert "queue: empty" in steps[-1]
    assert "0 private, 0 locked" in steps[-1]


def test_a_function_of_a_file_runs_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quiz_to_step.py"
    path.write_text(PROGRAM)
    assert main(["step", f"{path}:ask", "--arg", "question=Why?", "--steps", "2"]) == 0
    text = capsys.readouterr().out
    assert "ran: r0[0:4]" in text
    assert "--- step 3" not in text


def test_mistakes_are_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", "nowhere.py:f"]) == 1
    assert "no file 'nowhere.py'" in capsys.readouterr().err
    assert main(["step", "--policy", "best"]) == 1
    assert "schedule_policy='best'" in capsys.readouterr().err


def test_a_constraint_is_refused_by_name() -> None:
    stepper = Stepper(SchedulerConfig(context_length=64, vocab_size=257), page_size=4, num_pages=20)
    events: list[object] = []
    stepper.open_program(events.append).append([TextOp(1, 0, "a"), GenOp(2, 0, None, SamplingParams(regex="a+"))])
    assert stepper.wait_for_work(threading.Thread()), "the branch's lease is to be ended"
    stepper.step()
    assert not stepper.wait_for_work(threading.Thread())
    (failed,) = [event for event in events if isinstance(event, OpFailed)]
    assert isinstance(failed.error, UnsupportedError)
