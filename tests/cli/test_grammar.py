from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.cli.main import main

SCHEMA = {"type": "object", "title": "P", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]}


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def test_check_says_whether_and_where(schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "check", schema_file, "--text", '{"a":"xyz"}']) == 0
    assert "belongs" in capsys.readouterr().out
    assert main(["grammar", "check", schema_file, "--text", '{"a":"wxyz"}']) == 1
    out = capsys.readouterr().out
    assert "at byte 9" in out
    assert 'expected: ["]' in out


def test_explain_lists_keywords(schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "explain", schema_file]) == 0
    out = capsys.readouterr().out
    assert "exact      #/properties/a/maxLength" in out
    assert "annotation #/title" in out


@pytest.mark.parametrize(
    ("name", "text"),
    [("d.regex", "(cat|dog)s?\n"), ("d.gbnf", 'root ::= "cat" | "dog"'), ("d.lark", 'start: "cat" | "dog"')],
)
def test_draw_reads_every_kind(name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert main(["grammar", "draw", str(path)]) == 0
    assert "cat" in capsys.readouterr().out
    assert main(["grammar", "draw", str(path), "--format", "svg"]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert main(["grammar", "check", str(path), "--text", "dog"]) == 0


def test_a_fault_in_the_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.regex"
    path.write_text("(")
    assert main(["grammar", "check", str(path)]) == 1
    assert main(["grammar", "check", str(tmp_path / "none.json")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
