from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from sglang_lite.kernels.cpu import features
from sglang_lite.kernels.cpu.features import missing_features, target_features, target_name

_SCRIPT = """
from sglang_lite.kernels.cpu.features import byte_path, missing_features, target_name
print(target_name(), missing_features(), byte_path())
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
    assert on(NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx2,+fma,+f16c,+sse2") == "haswell () avx2"


def test_the_instruction_for_byte_products_is_taken_where_the_processor_has_it() -> None:
    basic = "+avx2,+fma,+f16c,+sse2"
    assert on(NUMBA_CPU_NAME="alderlake", NUMBA_CPU_FEATURES=f"{basic},+avxvnni") == "alderlake () vnni"
    assert on(NUMBA_CPU_NAME="cascadelake", NUMBA_CPU_FEATURES=f"{basic},+avx512vl,+avx512vnni").endswith(" vnni")
    assert on(NUMBA_CPU_NAME="cascadelake", NUMBA_CPU_FEATURES=f"{basic},+avx512vnni").endswith(" avx2")


@pytest.mark.parametrize(("machine", "have", "expected"), [("aarch64", {"dotprod"}, "neon"), ("arm64", set(), "plain")])
def test_processors_of_arm_run_the_kernels(
    machine: str, have: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(features, "target_features", lambda: frozenset(have))
    assert features.byte_path() == expected
    assert features.missing_features() == ()
    assert features.has_half()


def test_an_unknown_machine_lacks_what_the_kernels_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert features.missing_features()


def test_a_generic_processor_lacks_what_the_kernels_need() -> None:
    assert on(NUMBA_CPU_NAME="generic").startswith("generic ('avx2', 'fma', 'f16c')")
