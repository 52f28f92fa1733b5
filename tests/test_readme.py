"""The README does what it says: every Python block runs, every command stands in the Makefile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A Python block and, where a text block follows it at once, the output it promises."""

    code: str
    output: str | None


BLOCKS = [
    Block(found["code"], found["output"])
    for found in re.finditer(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", README, re.DOTALL)
]
ON_THE_MODEL = [block for block in BLOCKS if "ScriptedBackend" not in block.code]
SCRIPTED = [block for block in BLOCKS if "ScriptedBackend" in block.code]


def first_line(block: Block) -> str:
    return block.code.splitlines()[0]


def run(code: str, folder: Path) -> str:
    """Run a block as its own program, away from the checkout."""
    program = folder / "block.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_three_programs() -> None:
    assert (len(ON_THE_MODEL), len(SCRIPTED)) == (2, 1)


@pytest.mark.model
@pytest.mark.parametrize("block", ON_THE_MODEL, ids=first_line)
def test_a_block_on_the_model_runs_and_prints(block: Block, tmp_path: Path) -> None:
    """Not compared to the letter: where two tokens are almost as likely, machines differ."""
    assert run(block.code, tmp_path).strip()


@pytest.mark.parametrize("block", SCRIPTED, ids=first_line)
def test_a_scripted_block_prints_what_the_readme_shows(block: Block, tmp_path: Path) -> None:
    assert block.output is not None
    assert run(block.code, tmp_path) == block.output


def test_every_make_command_of_the_readme_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert named >= {"demo", "test"}
    assert [target for target in named if not re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)] == []


def test_every_link_into_the_repository_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
