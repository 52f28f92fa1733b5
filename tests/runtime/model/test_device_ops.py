"""The small operations of a layer: on the CPU exactly torch's, whatever a GPU does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from sglang_lite.runtime.model.device_ops import add_rms_norm, gated, rms_norm, rotate
from sglang_lite.runtime.model.rope import RopeConfig, RotaryEmbedding

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_in_float32_they_are_torchs_to_the_bit() -> None:
    """Sums, products and their order are what the native step's and the parity tests' numbers rest on."""
    x, residual, weight = numbers(5, 64), numbers(5, 64, seed=1), numbers(64, seed=2)
    assert torch.equal(rms_norm(x, weight, 1e-5), functional.rms_norm(x, (64,), weight, 1e-5))
    normed, total = add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, residual + x)
    assert torch.equal(normed, functional.rms_norm(residual + x, (64,), weight, 1e-5))
    for activation, act in (("silu", functional.silu), ("gelu_tanh", lambda v: functional.gelu(v, approximate="tanh"))):
        assert torch.equal(gated(x.clone(), activation), act(x[:, :32]) * x[:, 32:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_stay_and_angles_are_float32(dtype: torch.dtype) -> None:
    x, weight = numbers(3, 4, 16, dtype=dtype), numbers(16, dtype=dtype, seed=1)
    assert rms_norm(x, weight, 1e-5).dtype == dtype
    angles = RotaryEmbedding(RopeConfig(theta=100.0), 16).angles(torch.tensor([0, 7, 1000]), 1001)
    assert angles[0].dtype == torch.float32
    turned = rotate(x, angles)
    assert turned.dtype == dtype
    exact = rotate(x.float(), angles)
    assert torch.equal(turned, exact.to(dtype))
    assert torch.equal(turned[0], x[0])


def test_the_engines_modules_load_nothing_that_is_for_gpus() -> None:
    code = (
        "import sys, torch\nbefore = set(sys.modules)\nimport sglang_lite.runtime.engine.build\n"
        "print([m for m in set(sys.modules) - before if m.split('.')[0] in ('triton', 'flashinfer')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
