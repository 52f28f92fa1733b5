from __future__ import annotations

from typing import Any

import pytest
from llvmlite import binding, ir

from sglang_lite.kernels.cpu.features import byte_path
from sglang_lite.kernels.cpu.simd_dot import AVX2, NEON, PLAIN, VNNI
from sglang_lite.kernels.cpu.simd_int8 import emit_byte_tile, emit_nibble_tile

pytestmark = pytest.mark.native

ARM, X86 = "aarch64-linux-gnu", "x86_64-linux-gnu"


def machine_code(emit: Any, path: str, triple: str, cpu: str, features: str) -> str:
    """A tile of four rows as assembly for a processor that need not be this one."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 10), "tile")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit(builder, path, 4, True, list(function.args))
    builder.ret_void()
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(parsed)


@pytest.mark.parametrize("emit", [emit_nibble_tile, emit_byte_tile])
@pytest.mark.parametrize(
    ("path", "triple", "cpu", "features", "instruction"),
    [
        (VNNI, X86, "znver4", "", "vpdpbusd"),
        (VNNI, X86, "haswell", "+avxvnni", "vpdpbusd"),
        (AVX2, X86, "haswell", "", "vpmaddubsw"),
        (NEON, ARM, "generic", "+dotprod", "sdot"),
        (PLAIN, ARM, "generic", "", "fmla"),
        (PLAIN, X86, "x86-64", "+f16c,+fma", "vfmadd"),
    ],
)
def test_each_way_becomes_instructions_of_its_processors(
    emit: Any, path: str, triple: str, cpu: str, features: str, instruction: str
) -> None:
    """Compiled here for every target, run by the other tests where the processor is one."""
    code = machine_code(emit, path, triple, cpu, features)
    assert instruction in code
    assert "callq" not in code
    assert "\tbl\t" not in code


def test_the_way_of_this_process_is_a_known_one() -> None:
    assert byte_path() in (VNNI, AVX2, NEON, PLAIN)
