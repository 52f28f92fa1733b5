"""`sglang-lite profile`: on the real model, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from sglang_lite.cli.profile import table

PROGRAM = """
import sglang_lite as sgl

@sgl.function
def greet(s, name):
    s += "Hello " + name + ". I am"
    s += sgl.gen("rest", max_tokens=4, temperature=0)
"""


@pytest.mark.model
def test_a_program_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hello.py").write_text(PROGRAM)
    out = tmp_path / "trace.json"
    assert main(["profile", str(tmp_path / "hello.py"), "--arg", "name=Ada", "--out", str(out), "--json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert summary["shares"]["kernels"] > 0
    assert {"plan", "commit", "forward", "programs"} <= set(summary["parts"])
    assert "perfetto" in shown.err
    trace = json.loads(out.read_text())
    assert trace["otherData"] == summary
    assert "forward" in {event["name"] for event in trace["traceEvents"]}


def test_the_table_answers_the_question() -> None:
    summary = {
        "steps": 2,
        "seconds": 1.0,
        "parts": {"plan": 0.1, "forward": 0.3},
        "shares": {"scheduler": 0.25, "kernels": 0.75},
        "device_seconds": {"forward": 0.2},
        "device_idle_share": 0.5,
    }
    lines = [line.split() for line in table(summary)]
    assert ["plan", "50.000", "25.0%"] in lines
    assert ["forward", "150.000", "75.0%"] in lines
    assert ["standing", "still", "50.0%"] in lines
    assert lines[-1][-1] == "kernels"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--requests", "0"], "expected at least 1 of each"),
        (["--arg", "name=Ada"], "takes no --arg"),
        (["no_such.py"], "no file"),
    ],
)
def test_what_cannot_be_profiled_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == 1
    assert told in capsys.readouterr().err
