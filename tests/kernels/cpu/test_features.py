from __future__ import annotations

import os
import subprocess
import sys

from sglang_lite.kernels.cpu.features import missing_features, target_features, target_name

_SCRIPT = """
from sglang_lite.kernels.cpu.features import has_byte_dot_product, missing_features, target_name
print(target_name(), missing_features(), has_byte_dot_product())
"""


def on(**variables: str) -> str:
    """What a process with these variables sees."""
    command = [sys.executable, "-c", _SCRIPT]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | variables
    ).stdout.strip()


def test_the_target_is_this_machine_unless_said_otherwise() -> None:
    assert target_name()
    assert target_features() or missing_features()


def test_another_processor_can_be_named() -> None:
    assert on(NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx2,+fma,+f16c,+sse2") == "haswell () False"


def test_a_generic_processor_lacks_what_the_kernels_need() -> None:
    assert on(NUMBA_CPU_NAME="generic").startswith("generic ('avx2', 'fma', 'f16c')")
