"""Random stored weights and activations for the tests of the quantised linears."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from sglang_lite.kernels.cpu.linear import linear_address
from sglang_lite.kernels.reference.linear import linear, quantize_rows

# Where a block of 32 or 256 weights keeps its float16 factors.
_FACTORS = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}


def stored_weight(kind: str, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Every byte random, except for the factors, which are of usual size: uint8 [n, bytes], and its float32 values."""
    rng = np.random.default_rng(seed)
    storage = GGMLQuantizationType[kind]
    block, block_bytes = GGML_QUANT_SIZES[storage]
    raw = rng.integers(0, 256, (n, k // block, block_bytes), dtype=np.uint8)
    for at in _FACTORS[kind]:
        factors = rng.uniform(-0.02, 0.02, (n, k // block)).astype(np.float16)
        raw[..., at : at + 2] = factors[..., None].view(np.uint8)
    raw = raw.reshape(n, -1)
    return raw, dequantize(raw, storage).astype(np.float32)


class Activations:
    """Random rows and their int8 form."""

    def __init__(self, rows: int, k: int, seed: int = 1) -> None:
        self.x = np.random.default_rng(seed).standard_normal((rows, k)).astype(np.float32)
        self.values, self.scales, self.sums = quantize_rows(self.x)

    def times(self, weight: np.ndarray) -> np.ndarray:
        """The reference product of the int8 rows."""
        return linear(self.values, self.scales, weight)


def run_linear(
    kind: int, packed: np.ndarray, act: Activations, n: int, first: int = 0, last: int | None = None,
    start: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """The compiled product, columns `16 first` to `16 last`; NaN is what it leaves alone. `start`: add to this."""
    rows, k = act.x.shape
    width = -(-n // 16) * 16
    out = np.full((rows, width), np.nan, dtype=np.float32) if start is None else start.copy()
    function: Callable[..., Any] = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 12)(linear_address(kind))
    at = [array.ctypes.data for array in (packed, act.x, act.values, act.scales, act.sums)]
    last = width // 16 if last is None else last
    function(*at, out.ctypes.data + 64 * first, 4 * width, rows, k // 32, first, last, 0 if start is None else 1)
    return out


def check_linear(name: str, kind: int, pack: Callable[[np.ndarray], np.ndarray], k: int = 512) -> None:
    """Every row count that makes a difference, edges of columns, writing and adding, against the reference: 1e-5."""
    n = 40
    raw, weight = stored_weight(name, n, k)
    packed = pack(raw)
    for rows in (1, 2, 3, 4, 5, 7, 8, 9, 16, 19):
        act = Activations(rows, k)
        expected = act.times(weight)
        scale = np.abs(expected).std()
        np.testing.assert_allclose(run_linear(kind, packed, act, n)[:, :n], expected, atol=1e-5 * scale, rtol=1e-5)
        some = run_linear(kind, packed, act, n, 1, 2)
        np.testing.assert_allclose(some[:, 16:32], expected[:, 16:32], atol=1e-5 * scale, rtol=1e-5)
        assert np.isnan(some[:, :16]).all()
        assert np.isnan(some[:, 32:]).all()
        start = np.random.default_rng(3).standard_normal((rows, 48)).astype(np.float32)
        added = run_linear(kind, packed, act, n, start=start)
        np.testing.assert_allclose(added[:, :n] - start[:, :n], expected, atol=2e-5 * max(scale, 1), rtol=2e-5)


def check_rows_are_independent(name: str, kind: int, pack: Callable[[np.ndarray], np.ndarray]) -> None:
    """A row is the same to the bit alone and among others."""
    raw, _ = stored_weight(name, 32, 512)
    packed = pack(raw)
    act = Activations(19, 512)
    together = run_linear(kind, packed, act, 32)
    for row in (0, 5, 16, 18):
        alone = Activations(1, 512)
        alone.x = act.x[row : row + 1]
        alone.values, alone.scales, alone.sums = quantize_rows(alone.x)
        assert np.array_equal(run_linear(kind, packed, alone, 32)[0], together[row])
