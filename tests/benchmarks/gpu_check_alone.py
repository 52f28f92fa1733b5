"""Run in a process of its own: `benchmarks.gpu_check` where nothing is installed that a GPU machine may lack."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

BLOCKED = {
    *("numba", "llvmlite", "tokenizers", "gguf", "fastapi", "starlette", "uvicorn", "pydantic", "msgspec", "zmq"),
    *("jinja2", "yaml", "huggingface_hub", "interegular", "outlines_core", "flashinfer"),
}


class Blocker(MetaPathFinder):
    """Nothing of it can be imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {fullname!r} (blocked)", name=fullname)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocker())
    from benchmarks.gpu_check import main

    raise SystemExit(main(sys.argv[1:]))
