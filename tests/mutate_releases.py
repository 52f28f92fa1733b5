"""Removes every line that gives memory back, one at a time, and shows which test notices: `python -m tests.mutate_releases`.

Works on a temporary copy of the package. A line is a statement that calls one of `RELEASES`, or lowers a counter of
`COUNTERS`, in the memory or the scheduler package. Exit status 1: removing some line goes unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sglang_lite/runtime/memory", "sglang_lite/runtime/scheduler")
TESTS = {
    "sglang_lite/runtime/memory": ("tests/runtime/memory", "tests/runtime/scheduler"),
    "sglang_lite/runtime/scheduler": ("tests/runtime/scheduler",),
}
RELEASES = frozenset(
    {
        "release",
        "unlock",
        "give",
        "end_lease",
        "release_edges",
        "drop",
        "_leave_parent",
        "_remove",
        "_forget_empty_root",
    }
)
COUNTERS = frozenset({"lock_ref", "evictable_pages", "protected_pages"})
LIMIT_S = 300


@dataclass(frozen=True)
class Mutant:
    """One statement to remove: lines `first` to `last` of `path`, counted from 1."""

    path: str
    first: int
    last: int
    source: str


def find_mutants(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """The releasing statements of a module, in order."""
    text = path.read_text()
    for node in sorted(ast.walk(ast.parse(text)), key=lambda n: getattr(n, "lineno", 0)):
        if not isinstance(node, ast.stmt) or not _releases(node):
            continue
        source = ast.get_source_segment(text, node) or ""
        yield Mutant(str(path.relative_to(root)), node.lineno, node.end_lineno or node.lineno, " ".join(source.split()))


def _releases(node: ast.stmt) -> bool:
    if isinstance(node, ast.AugAssign):
        target = node.target
        return isinstance(node.op, ast.Sub) and isinstance(target, ast.Attribute) and target.attr in COUNTERS
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in RELEASES


def without(text: str, mutant: Mutant) -> str:
    """The module's text with the statement replaced by `pass`."""
    lines = text.splitlines(keepends=True)
    first = lines[mutant.first - 1]
    indent = first[: len(first) - len(first.lstrip())]
    return "".join([*lines[: mutant.first - 1], f"{indent}pass\n", *lines[mutant.last :]])


def run_tests(folder: Path, tests: Sequence[str]) -> str | None:
    """The first failing test (or what else ended the run), or None if all pass."""
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    plugins = ["-p", "no:cacheprovider", "-p", "tests.support.no_shrink"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", *plugins, *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S} s"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"exit {done.returncode}: {(done.stdout + done.stderr)[-200:]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run every mutant; 1 if one survives or the tests fail without any."""
    parser = argparse.ArgumentParser(description="Remove each releasing line in turn and name the test that notices.")
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--list", action="store_true", help="print the lines and run nothing")
    options = parser.parse_args(argv)
    mutants = [
        mutant
        for package in PACKAGES
        for path in sorted((ROOT / package).glob("*.py"))
        for mutant in find_mutants(path)
        if options.only in mutant.path
    ]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.path}:{mutant.first}: {mutant.source}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("sglang_lite", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        if (failing := run_tests(folder, TESTS[PACKAGES[0]])) is not None:
            print(f"the tests fail without any line removed: {failing}")
            return 1
        survivors = 0
        for mutant in mutants:
            target = folder / mutant.path
            whole = target.read_text()
            target.write_text(without(whole, mutant))
            killer = run_tests(folder, TESTS[str(Path(mutant.path).parent)])
            target.write_text(whole)
            survivors += killer is None
            verdict = f"killed by {killer}" if killer else "SURVIVES"
            print(f"{mutant.path}:{mutant.first}: {mutant.source}\n    {verdict}", flush=True)
    print(f"{len(mutants)} lines removed in turn, {len(mutants) - survivors} noticed, {survivors} not")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
