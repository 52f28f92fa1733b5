"""What `sglang-lite run FILE.py[:NAME]` means: a script, a `main()` or one `@function`; it runs nothing itself."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.lang.sgl_function import SglFunction

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)
_RUN_METHODS = {"run", "run_batch", "generate"}


def split_target(text: str) -> tuple[Path, str | None]:
    """`FILE.py` or `FILE.py:NAME` as path and name.

    Raises:
        RequestError: no such file.
    """
    name: str | None = None
    path = Path(text)
    if not path.exists() and ":" in text:
        head, _, name = text.rpartition(":")
        path = Path(head)
    if not path.is_file():
        raise RequestError(f"running {text}: no file {str(path)!r}, expected FILE.py or FILE.py:FUNCTION")
    return path, name


def has_module_level_code(source: str) -> bool:
    """Whether running the file does something: code beside imports, definitions and plain assignments."""
    return any(_does_something(node) for node in ast.parse(source).body)


def load_module(path: Path) -> ModuleType:
    """Import the file by its path, its folder first on the import path as Python does for scripts."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, f"{path} is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def find_function(module: ModuleType, name: str | None, path: Path) -> SglFunction:
    """The named `@function` of the module, or its only one.

    Raises:
        RequestError: it is not there, or there are several and none is named; lists what is there.
    """
    functions = {key: value for key, value in vars(module).items() if isinstance(value, SglFunction)}
    if name is not None:
        if name not in functions:
            raise RequestError(f"running {path}:{name}: no such @function, the file has {sorted(functions)}")
        return functions[name]
    if len(functions) != 1:
        raise RequestError(
            f"running {path}: it has no main(), no code at module level and {len(functions)} @functions "
            f"{sorted(functions)}; name one: {path}:FUNCTION"
        )
    return next(iter(functions.values()))


def check_arguments(function: SglFunction, given: dict[str, Any]) -> None:
    """Before a model is loaded: the function must take `given`, and need nothing else.

    Raises:
        RequestError: names what is missing or unknown.
    """
    parameters = list(inspect.signature(function.func).parameters.values())[1:]
    required = {p.name for p in parameters if p.default is p.empty} - set(function.bind_arguments)
    missing, unknown = sorted(required - set(given)), sorted(set(given) - set(function.arg_names))
    if missing or unknown:
        raise RequestError(
            f"running {function.__name__}({', '.join(function.arg_names)}): missing {missing}, unknown {unknown}; give each "
            "as --arg name=value"
        )


def _does_something(node: ast.stmt) -> bool:
    if isinstance(node, _DEFINITIONS):
        return False
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return any(
            isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _RUN_METHODS
            for part in ast.walk(node)
        )
    return True
