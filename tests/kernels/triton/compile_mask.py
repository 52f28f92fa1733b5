"""Run in a process of its own without the interpreter: compiles the Triton mask for GPUs that need not be there."""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sglang_lite.kernels.triton.token_mask import BLOCK, token_mask_kernel


def main(capability: int) -> None:
    """Compile down to the machine code of compute capability `capability` (80: A100, 90: H100)."""
    signature = {"logits": "*fp32", "bitmask": "*i32", "rows": "*i64", "BLOCK": "constexpr"} | dict.fromkeys(
        ("logits_stride", "bitmask_stride", "vocab", "words"), "i32"
    )
    source = ASTSource(token_mask_kernel, signature, {"BLOCK": BLOCK})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert f".target sm_{capability}" in compiled.asm["ptx"], compiled.asm["ptx"][:400]
    print(f"sm_{capability}: {len(compiled.asm['cubin'])} bytes of machine code")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(int(argument))
