"""The GPU's token mask without a GPU: its values in Triton's interpreter, its code for two generations of GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import triton as folder

ROOT = Path(folder.__file__).parents[3]

pytestmark = pytest.mark.triton


def run(module: str, *arguments: str, cache: Path, **variables: str) -> str:
    """What a module of tests prints in a process of its own: Triton reads its variables once, at its import."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    result = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.triton.{module}", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env=kept | {"TRITON_CACHE_DIR": str(cache)} | variables,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run("masks_in_interpreter", cache=tmp_path, TRITON_INTERPRET="1").strip() == "40 cases"


def test_it_compiles_without_a_gpu(tmp_path: Path) -> None:
    told = run("compile_mask", "80", "90", cache=tmp_path).splitlines()
    assert [line.partition(":")[0] for line in told] == ["sm_80", "sm_90"]
