from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lite.kernels.cpu.simd_dot import AVX2, PLAIN

pytestmark = pytest.mark.native

_SCRIPT = """
import sys
from pathlib import Path
from sglang_lite.kernels.cpu.jit import prepare_cache
prepare_cache(Path(sys.argv[1]))
import numpy as np
from sglang_lite.kernels.cpu.features import byte_path
from sglang_lite.kernels.cpu.linear import PACKERS
from tests.kernels.cpu.quantized_case import Activations, run_linear, stored_weight
print(byte_path())
for name in ("Q4_1", "Q4_K", "Q8_0", "Q6_K"):
    kind, pack = PACKERS[name]
    raw, _ = stored_weight(name, 16, 512)
    print(run_linear(kind, pack(raw), Activations(5, 512), 16).tobytes().hex())
"""
_ROOT = Path(__file__).resolve().parents[3]


_OLDER = "+fma,+f16c,+sse2,+ssse3,+avx,+sse4.1,+sse4.2"


@pytest.mark.slow
def test_all_instruction_sets_give_the_same_bits(tmp_path: Path) -> None:
    """Integer sums are exact, and the float part is the same code: this machine's way, AVX2 and plain products agree."""
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    others = [
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": f"{_OLDER},+avx2"},
        {"NUMBA_CPU_NAME": "sandybridge", "NUMBA_CPU_FEATURES": _OLDER},
    ]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT, env=os.environ | extra).stdout
        for extra in ({}, *others)
    ]
    own, *rest = (output.split() for output in outputs)
    assert [lines[0] for lines in rest] == [AVX2, PLAIN]
    assert own[1:] == rest[0][1:] == rest[1][1:]
    assert len(own) == 5
