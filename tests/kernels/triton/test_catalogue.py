"""Every Triton kernel compiles for two generations of GPUs, none of which is here; none can be forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.triton.conftest import ROOT, run_module

pytestmark = pytest.mark.triton


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kernel_compiles_without_a_gpu(tmp_path: Path) -> None:
    """By the script for GPUs, one process for all: most of a small kernel's time is the start of Triton."""
    out = tmp_path / "compiled.json"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--compile-only", "--arch", "sm_80,sm_90", "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
        cwd=ROOT,
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["errors"] == {}
    names = [(one["name"], one["capability"]) for one in report["compiled"]]
    assert len(names) == len(set(names))
    assert sum(capability == 80 for _, capability in names) * 2 == len(names)
    assert {
        *("token_mask", "norm", "rope", "silu", "sampling", "penalties", "logprobs", "linear_q4"),
        *("store_kv", "decode_attention", "extend_attention"),
    } <= {name.partition(".")[0] for name, _ in names}


def test_a_kernel_without_a_compile_case_is_found(tmp_path: Path) -> None:
    assert run_module("forgotten_kernels", cache=tmp_path, interpret=False) == ["no cases", "one left out", "none"]
