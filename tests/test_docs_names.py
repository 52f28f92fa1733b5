"""The pages that name code and tests name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def names_in(path: Path) -> set[str]:
    """Top-level names, and `Class.member` for methods and nested definitions."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


READING = re.findall(
    r"`((?:runtime|cli|lang)/[\w/]+\.py):([\w.]+)`", (ROOT / "docs/reading.md").read_text(encoding="utf-8")
)
INVARIANTS = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "name"), sorted(set(READING)))
def test_what_the_reading_page_names_exists(path: str, name: str) -> None:
    assert name in names_in(ROOT / "sglang_lite" / path)


def test_the_reading_page_names_enough_to_be_a_way_through() -> None:
    assert len(READING) > 40


@pytest.mark.parametrize(("path", "name"), sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", INVARIANTS))))
def test_what_the_invariants_page_names_exists(path: str, name: str) -> None:
    assert name in names_in(ROOT / path)


def test_every_rule_has_its_test() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| `tests/[\w/]+\.py::\w+` \|$", INVARIANTS, re.MULTILINE)
    assert len(rows) >= 34
    assert rows == [str(number) for number in range(1, len(rows) + 1)]
