"""What the processor that the kernels are compiled for can do. Knows no kernel."""

from __future__ import annotations

import platform
from functools import cache

from llvmlite import binding
from numba.core import config

from sglang_lite.kernels.cpu.simd_dot import AVX2, NEON, PLAIN, VNNI

_BASIC = ("avx2", "fma", "f16c")
_X86 = ("x86_64", "AMD64")
_ARM = ("aarch64", "arm64")


@cache
def target_name() -> str:
    """The processor that Numba compiles for: this one, or the one that NUMBA_CPU_NAME names."""
    return config.CPU_NAME or binding.get_host_cpu_name()  # pyright: ignore[reportAttributeAccessIssue]


@cache
def target_features() -> frozenset[str]:
    """LLVM's names of the instruction sets that Numba compiles for (NUMBA_CPU_FEATURES overrides the detection)."""
    given = config.CPU_FEATURES  # pyright: ignore[reportAttributeAccessIssue]
    if given is not None:
        return frozenset(name[1:] for name in given.split(",") if name.startswith("+"))
    if target_name() == "generic":
        return frozenset()
    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def missing_features() -> tuple[str, ...]:
    """What the int8 kernels need and the target lacks; empty where they run."""
    if platform.machine() in _ARM:
        return ()
    if platform.machine() not in _X86:
        return _BASIC
    return tuple(name for name in _BASIC if name not in target_features())


def byte_path() -> str:
    """How byte products are summed on this target, one of the names in `simd_dot`."""
    have = target_features()
    if platform.machine() in _ARM:
        return NEON if "dotprod" in have else PLAIN
    if {"avx512vnni", "avx512vl"} <= have or "avxvnni" in have:
        return VNNI
    return AVX2 if "avx2" in have else PLAIN


def has_half() -> bool:
    """Whether float16 numbers can be read and written by instructions; elsewhere LLVM would call what is not there."""
    return platform.machine() not in _X86 or "f16c" in target_features()
