"""One product for all storages of a weight: the storage is a number that travels with the address."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from sglang_lite.kernels.cpu.linear_f32 import linear_f32
from sglang_lite.kernels.cpu.linear_q4_1 import linear_q4_1, pack_q4_0, pack_q4_1
from sglang_lite.kernels.cpu.linear_q4_k import linear_q4_k, pack_q4_k
from sglang_lite.kernels.cpu.linear_q6_k import linear_q6_k, pack_q6_k
from sglang_lite.kernels.cpu.linear_q8_0 import linear_q8_0, pack_q8_0
from sglang_lite.kernels.cpu.simd_int8 import load_byte, load_float, load_half, load_signed, store_float

NIBBLE, NIBBLE_WIDE, BYTE, BYTE_SPLIT, FLOAT = range(1, 6)

PACKERS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "Q4_0": (NIBBLE, pack_q4_0),
    "Q4_1": (NIBBLE, pack_q4_1),
    "Q4_K": (NIBBLE_WIDE, pack_q4_k),
    "Q8_0": (BYTE, pack_q8_0),
    "Q6_K": (BYTE_SPLIT, pack_q6_k),
}
"""GGUF's name of a storage -> its number here, and what packs the stored bytes uint8 [N, bytes of a row]."""

FLOATS = ("F32", "F16", "BF16")
"""Storages that `pack_f32` takes as float32 [N, K]."""

_FUNCTIONS: dict[int, Any] = {
    NIBBLE: linear_q4_1,
    NIBBLE_WIDE: linear_q4_k,
    BYTE: linear_q8_0,
    BYTE_SPLIT: linear_q6_k,
    FLOAT: linear_f32,
}


@cache
def linear_address(kind: int) -> int:
    """Address of the C function that multiplies with weights of a storage; the first call compiles or loads it.

    Twelve int64 arguments, those of `linear_q4_1`. A driver calls it through its address, so that a model compiles the
    storages that it has, once, and not again within each caller.
    """
    function = _FUNCTIONS[kind].py_func
    address = cfunc(types.void(*[types.int64] * 12), cache=True)(function).address
    assert address is not None, f"the compiled product for storage {kind} has no address"
    return address


@njit(nogil=True, cache=True, error_model="numpy")
def unpack_row(kind: int, w: int, groups: int, row: int, out: int) -> None:
    """Row `row` of a packed matrix as float32 [32 groups] at `out`: an embedding."""
    eight, lane = row // 8, row % 8
    for g in range(groups):
        at = eight * groups + g
        for i in range(32):
            quad, byte = i // 4, 4 * lane + i % 4
            if kind in (NIBBLE, NIBBLE_WIDE):
                block = w + at * (160 if kind == NIBBLE else 192)
                packed = load_byte(block + 32 * (quad % 4) + byte)
                q = np.float32(packed & 15 if quad < 4 else packed >> 4)
                if kind == NIBBLE:
                    value = load_half(block + 128 + 2 * lane) * q + load_half(block + 144 + 2 * lane)
                else:
                    value = load_float(block + 128 + 4 * lane) * q + load_float(block + 160 + 4 * lane)
            elif kind == BYTE:
                block = w + at * 272
                value = load_half(block + 256 + 2 * lane) * load_signed(block + 32 * quad + byte)
            elif kind == BYTE_SPLIT:
                block = w + at * 320
                value = load_float(block + 256 + 32 * (i // 16) + 4 * lane) * load_signed(block + 32 * quad + byte)
            else:
                value = load_float(w + 4 * (row // 16 * groups * 512 + (32 * g + i) * 16 + row % 16))
            store_float(out + 4 * (32 * g + i), value)
