"""The gate of the MLP: `silu(gate) * up` or `gelu(gate) * up`."""

from __future__ import annotations

from numba import njit

from sglang_lite.kernels.cpu.simd_rows import gelu_product, silu_product


@njit(nogil=True, cache=True, error_model="numpy")
def silu_mul(gate: int, up: int, out: int, count: int) -> None:
    """`out = gate / (1 + exp(-gate)) * up` for `count` floats, a multiple of 16; addresses."""
    silu_product(gate, up, out, count // 16)


@njit(nogil=True, cache=True, error_model="numpy")
def gelu_mul(gate: int, up: int, out: int, count: int) -> None:
    """As `silu_mul` with the tanh form of gelu: `gate / 2 * (1 + tanh(sqrt(2 / pi) (gate + 0.044715 gate^3))) * up`."""
    gelu_product(gate, up, out, count // 16)
