"""`sglang-lite inspect`: a record as text and as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from tests.records.support import recorded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "record.json"
    recorded().save(file)
    return file


def test_the_tree_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("outline  on ScriptedBackend")
    assert "gen idea" in out


def test_the_page_is_written_and_the_tree_only_when_asked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = path.with_suffix(".html")
    assert main(["inspect", str(path), "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr().out == ""
    assert main(["inspect", str(path), "--html", str(page), "--text"]) == 0
    assert "gen idea" in capsys.readouterr().out


def test_what_cannot_be_read_or_written_is_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path.with_name("none.json"))]) == 1
    assert main(["inspect", str(path), "--html", str(path / "x.html")]) == 1
    assert capsys.readouterr().err.count("RequestError") == 2
