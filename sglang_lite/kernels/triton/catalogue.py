"""All Triton kernels of this package: which there are, and compiling them for GPUs that need not be there."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sglang_lite.kernels import triton as package
from sglang_lite.kernels.triton.compile_case import CompileCase

KERNEL_SUFFIX = "_kernel"
"""How the names of jit functions end that are launched; others are called by them."""

WARP_SIZE = 32
ALIGNMENT = 16
SHARED_BYTES = {80: 101_376, 90: 232_448}
"""Shared memory that one program may have, by compute capability; 8.6 and 8.9 have less than 8.0 and the same instructions."""

_NO_KERNELS = ("catalogue", "compile_case")


@dataclass(frozen=True, slots=True)
class CompiledSize:
    """What compiling a case gave: bytes of machine code, and of shared memory per program."""

    name: str
    capability: int
    code_bytes: int
    shared_bytes: int


def modules() -> list[ModuleType]:
    """The modules of this package that may hold kernels, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in _NO_KERNELS)
    return [import_module(f"{package.__name__}.{name}") for name in names]


def kernels_of(module: ModuleType) -> set[str]:
    """The names of the jit functions that `module` defines and launches."""
    return {
        name
        for name, value in vars(module).items()
        if name.endswith(KERNEL_SUFFIX) and not name.startswith("_") and value.__module__ == module.__name__
    }


def cases_of(module: ModuleType) -> list[CompileCase]:
    """The compile cases of a module; asserts that each of its kernels has one and that names are unique."""
    kernels = kernels_of(module)
    declared = vars(module).get("compile_cases")
    assert declared is not None or not kernels, f"{module.__name__} has kernels ({sorted(kernels)}), no compile_cases()"
    cases: list[CompileCase] = declared() if declared is not None else []
    missing = kernels - {case.kernel.__name__ for case in cases}
    assert not missing, f"compile_cases() of {module.__name__} leaves out {sorted(missing)}"
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), f"compile cases of {module.__name__} share a name: {sorted(names)}"
    return cases


def collect(only: Iterable[str] = ()) -> list[CompileCase]:
    """The compile cases of all modules, or of those named in `only` (such as `norm`)."""
    wanted = {f"{package.__name__}.{name}" for name in only}
    return [case for module in modules() if not wanted or module.__name__ in wanted for case in cases_of(module)]


def compile_case(case: CompileCase, capability: int) -> CompiledSize:
    """Compile down to machine code, as for a launch whose pointers are aligned to 16 bytes.

    Args:
        case: what to compile. `i32:16` in its signature is a number divisible by 16, as launches find it out.
        capability: compute capability, 80 (A100) or 90 (H100, H200).

    Raises:
        RuntimeError: of Triton, where the kernel cannot be compiled.

    """
    names: list[str] = case.kernel.arg_names
    assert list(case.signature) == names, f"{case.name}: signature {list(case.signature)}, arguments {names}"
    types = {name: kind.removesuffix(f":{ALIGNMENT}") for name, kind in case.signature.items()}
    constexprs = {name for name, kind in types.items() if kind == "constexpr"}
    assert constexprs == set(case.constants), f"{case.name}: constants {set(case.constants)}, constexpr {constexprs}"
    aligned: dict[tuple[int, ...], list[list[Any]]] = {
        (place,): [["tt.divisibility", ALIGNMENT]]
        for place, kind in enumerate(case.signature.values())
        if kind.startswith("*") or kind.endswith(f":{ALIGNMENT}")
    }
    source = ASTSource(case.kernel, types, dict(case.constants), aligned)
    compiled: Any = triton.compile(source, target=GPUTarget("cuda", capability, WARP_SIZE), options=dict(case.options))
    assert f".target sm_{capability}" in compiled.asm["ptx"], compiled.asm["ptx"][:400]
    shared_bytes = compiled.metadata.shared
    assert shared_bytes <= SHARED_BYTES[capability], f"{case.name} takes {shared_bytes} bytes of shared memory"
    return CompiledSize(case.name, capability, len(compiled.asm["cubin"]), shared_bytes)
