"""docs/language.md does what it says: every block runs as its own program and prints what is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def name_of(block: tuple[str, str]) -> str:
    return re.findall(r"def (\w+)\(s", block[0])[0]


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_a_block_prints_what_the_page_shows(block: tuple[str, str], tmp_path: Path) -> None:
    code, output = block
    program = tmp_path / "block.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if output:
        assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in output.splitlines()]
    else:
        assert done.stdout


def test_the_page_shows_every_part_of_the_language() -> None:
    assert len(BLOCKS) >= 13
    for name in (
        "s.fork",
        "separate_reasoning",
        "run_batch",
        "run_async",
        "trace",
        "compat",
        "s.ref",
        "usage",
        "join(vote=",
        "s.rewind",
        "s.confidence",
        "s.backend",
    ):
        assert name in PAGE
