"""Random numbers in the three float types of the GPU kernels, and how near a result of each must be."""

from __future__ import annotations

import numpy as np
import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-11}
"""Half a unit in the last place; in float32 the error of a sum; a whole unit in bfloat16, where the interpreter cuts off."""


def draw(random: np.random.Generator, *shape: int, kind: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal(shape).astype(np.float32) * np.float32(scale)).to(kind)


def assert_near(got: torch.Tensor, expected: np.ndarray, kind: torch.dtype, absolute: float = 1e-6) -> None:
    """One rounding of the exact result apart, not more."""
    assert got.dtype == kind
    np.testing.assert_allclose(got.double().numpy(), expected, rtol=ROUNDING[kind] * 1.01, atol=absolute)
