"""The gate of the MLP: `silu(gate) * up`."""

from __future__ import annotations

from numba import njit

from sglang_lite.kernels.cpu.simd_rows import silu_product


@njit(nogil=True, cache=True, error_model="numpy")
def silu_mul(gate: int, up: int, out: int, count: int) -> None:
    """`out = gate / (1 + exp(-gate)) * up` for `count` floats, a multiple of 16; addresses."""
    silu_product(gate, up, out, count // 16)
