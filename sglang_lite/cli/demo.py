"""The demo: the two example agents, one after the other, on one backend."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import sglang_lite
from sglang_lite.cli.options import backend_named
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.registry import set_default_backend

AGENTS = ("react", "tree_of_thought")
_PACKAGE = Path(sglang_lite.__file__).parent
_FOLDERS = (_PACKAGE / "_agents", _PACKAGE.parent / "examples" / "agents")
"""Where the examples lie: in an installed wheel, and in a checkout."""


def run_demo(backend: str | None) -> int:
    """Run both agents; their output goes to the screen."""
    set_default_backend(backend_named(backend))
    for name in AGENTS:
        agent = load_agent(name)
        print(f"== {name}: {(agent.__doc__ or '').splitlines()[0]}")
        agent.main([])
        print()
    return 0


def load_agent(name: str) -> ModuleType:
    """One example as a module.

    Raises:
        RequestError: the examples are neither in the installed package nor in a checkout.
    """
    for folder in _FOLDERS:
        path = folder / f"{name}.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"sglang_lite_demo_{name}", path)
            assert spec is not None, f"{path} is a Python file"
            assert spec.loader is not None, f"{path} is a Python file"
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
    raise RequestError(
        f"running the demo: no {name}.py in {[str(folder) for folder in _FOLDERS]}; install the package again"
    )
