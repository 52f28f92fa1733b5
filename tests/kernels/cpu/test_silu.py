from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from sglang_lite.kernels.cpu.silu import gelu_mul, silu_mul
from sglang_lite.kernels.reference import silu as reference

pytestmark = pytest.mark.native


@njit
def gated(gate: np.ndarray, up: np.ndarray, out: np.ndarray) -> None:
    silu_mul(gate.ctypes.data, up.ctypes.data, out.ctypes.data, gate.shape[0])


def test_agrees_with_the_reference_from_large_negative_to_large_positive() -> None:
    gate = np.linspace(-80, 80, 4096, dtype=np.float32)
    up = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    out = np.empty_like(gate)
    gated(gate, up, out)
    np.testing.assert_allclose(out, reference.silu_mul(gate, up), rtol=2e-6, atol=1e-30)


@njit
def gelu_gated(gate: np.ndarray, up: np.ndarray, out: np.ndarray) -> None:
    gelu_mul(gate.ctypes.data, up.ctypes.data, out.ctypes.data, gate.shape[0])


def test_the_gelu_gate_agrees_with_torch_and_keeps_nan() -> None:
    gate = np.linspace(-30, 30, 4096, dtype=np.float32)
    up = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    gate[7] = np.nan
    out = np.empty_like(gate)
    gelu_gated(gate, up, out)
    expected = torch.nn.functional.gelu(torch.from_numpy(gate).double(), approximate="tanh") * torch.from_numpy(up)
    np.testing.assert_allclose(out, expected.numpy(), rtol=2e-6, atol=2e-6)


def test_extremes_do_not_overflow_and_nan_stays() -> None:
    gate = np.array([-1e30, -1000, 1000, np.nan] * 4, dtype=np.float32)
    out = np.empty_like(gate)
    gated(gate, np.ones_like(gate), out)
    assert np.abs(out[:2]).max() < 1e-6
    assert out[2] == 1000
    assert np.isnan(out[3])
