"""Run with TRITON_INTERPRET=1: the gate against its definition."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference.silu import gelu_tanh_mul, silu_mul
from sglang_lite.kernels.triton.silu import BLOCK, gated
from tests.kernels.triton.floats import FLOATS, assert_near, draw

DEFINITIONS = {"silu": silu_mul, "gelu_tanh": gelu_tanh_mul}


def check_shapes() -> None:
    for kind in FLOATS:
        for activation, define in DEFINITIONS.items():
            for rows, size in ((0, 8), (1, 1), (2, 63), (3, BLOCK - 1), (1, BLOCK), (2, BLOCK + 1)):
                wide = draw(np.random.default_rng(size), rows, 2 * size + 3, kind=kind, scale=4)
                gate_up = wide[:, : 2 * size]
                numbers = gate_up.double().numpy()
                assert_near(gated(gate_up, activation), define(numbers[:, :size], numbers[:, size:]), kind, 1e-5)


def check_extremes() -> None:
    gate_up = torch.tensor([[-1e4, -90.0, 0.0, 90.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]])
    for activation in DEFINITIONS:
        got = gated(gate_up, activation)
        assert torch.equal(got, torch.tensor([[0.0, 0.0, 0.0, 90.0, 1e4]])), got


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1 / infinity is 0, as on a GPU
                check()
            print(name)
