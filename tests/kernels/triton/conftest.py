"""Processes of their own for Triton: it reads its variables once, at its import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kernels import triton as folder

ROOT = Path(folder.__file__).parents[3]


def run_module(
    module: str, *arguments: str, cache: Path, interpret: bool = True, timeout_s: int = 280, **variables: str
) -> list[str]:
    """The lines that `tests.kernels.triton.<module>` prints in a process of its own, which must end well.

    Args:
        module: a module of this folder; with `interpret` its kernels run on CPU tensors, without it they may be compiled.
        arguments: its command line.
        cache: folder for Triton's compiled kernels, such as `tmp_path`.
        interpret: set TRITON_INTERPRET.
        timeout_s: when a process that hangs is ended.
        variables: further environment variables; none of Triton's are inherited.

    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    own = {"TRITON_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"} | ({"TRITON_INTERPRET": "1"} if interpret else {})
    result = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.triton.{module}", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=ROOT,
        env=kept | own | variables,
    )
    assert result.returncode == 0, f"{result.stdout[-1000:]}\n{result.stderr[-4000:]}"
    return result.stdout.splitlines()
