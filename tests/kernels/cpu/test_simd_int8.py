from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lite.kernels.cpu.features import has_byte_dot_product

pytestmark = pytest.mark.native

_SCRIPT = """
import sys
from pathlib import Path
from sglang_lite.kernels.cpu.jit import prepare_cache
prepare_cache(Path(sys.argv[1]))
import numpy as np
from sglang_lite.kernels.cpu.linear import PACKERS
from tests.kernels.cpu.quantized_case import Activations, run_linear, stored_weight
for name in ("Q4_1", "Q8_0", "Q6_K"):
    kind, pack = PACKERS[name]
    raw, _ = stored_weight(name, 16, 512)
    print(run_linear(kind, pack(raw), Activations(5, 512), 16).tobytes().hex())
"""
_ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_both_instruction_sets_give_the_same_bits(tmp_path: Path) -> None:
    """Integer sums are exact, and the float part is the same code: with VNNI and without it nothing differs."""
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    plain = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+sse2,+ssse3,+avx,+sse4.1,+sse4.2"}
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT, env=os.environ | extra).stdout
        for extra in ({}, plain)
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].split()) == 3
    assert isinstance(has_byte_dot_product(), bool)
