from __future__ import annotations

import re
from pathlib import Path

import pytest

from sglang_lite.cli.main import COMMANDS, build_parser, main

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_table_in_the_docs_lists_exactly_the_commands() -> None:
    rows = re.findall(r"^\| `sglang-lite (\w+)` \| (.+?) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(command.NAME, command.SUMMARY) for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.NAME)
def test_every_command_teaches_by_its_help(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command.NAME, "--help"])  # pyright: ignore[reportAttributeAccessIssue]
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert (command.__doc__ or "").strip().splitlines()[0] in text
    assert command.NAME in ("serve", "plan", "warmup", "bench", "profile", "inspect", "grammar") or "--backend" in text


def test_without_a_command_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
