"""What a script written for SGLang needs and does not find here; the script is read, not run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sglang_lite.compat.aliases import LACKING, MODULES
from sglang_lite.errors import RequestError


@dataclass(frozen=True, slots=True)
class Lack:
    """A name that a script uses and that does not exist here."""

    line: int
    name: str
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.name}: {self.remedy}"


def report(path: str | os.PathLike[str]) -> list[Lack]:
    """The names of SGLang in a file that we lack, in the order of lines: imported ones, and attributes of modules.

    Raises:
        RequestError: the file cannot be read, or is no Python.
    """
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"), filename=str(path))
    except (OSError, SyntaxError) as error:
        raise RequestError(f"reading {os.fspath(path)!r}: {error}") from error
    modules = dict(_modules_bound(tree))
    found = [*_imports(tree), *_attributes(tree, modules)]
    return sorted(set(found), key=lambda lack: (lack.line, lack.name))


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "sglang"


def _lack(module: str, name: str, line: int) -> Iterator[Lack]:
    if module not in MODULES:
        yield Lack(line, module, "there is no such module here")
    elif name not in MODULES[module] and f"{module}.{name}" not in MODULES:
        yield Lack(line, f"{module}.{name}", LACKING.get(module, {}).get(name, "there is no such name here"))


def _modules_bound(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Variables that are modules of SGLang."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    yield (alias.asname, alias.name) if alias.asname else ("sglang", "sglang")
        elif isinstance(node, ast.ImportFrom) and node.module is not None and _is_ours(node.module):
            for alias in node.names:
                if f"{node.module}.{alias.name}" in MODULES:
                    yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _imports(tree: ast.Module) -> Iterator[Lack]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name) and alias.name not in MODULES:
                    yield Lack(node.lineno, alias.name, "there is no such module here")
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and _is_ours(node.module):
            for alias in node.names:
                if alias.name != "*":
                    yield from _lack(node.module, alias.name, node.lineno)


def _attributes(tree: ast.Module, modules: dict[str, str]) -> Iterator[Lack]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield from _lack(modules[node.value.id], node.attr, node.lineno)
