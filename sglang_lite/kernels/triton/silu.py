"""The gate of the MLP, on a GPU: Triton. Oracle: `kernels/reference/silu.py`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

BLOCK = 1024
ACTIVATIONS = ("silu", "gelu_tanh")


@triton.jit
def gated_kernel(
    gate_up,  # [T, 2 * size], the last dimension contiguous
    out,  # [T, size], contiguous
    stride,
    size,
    IS_SILU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, j) computes columns `BLOCK * j ...` of row i, in float32, rounded once."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(gate_up + row * stride + columns, mask=inside, other=0).to(tl.float32)
    up = tl.load(gate_up + row * stride + size + columns, mask=inside, other=0).to(tl.float32)
    slope = gate
    if not IS_SILU:  # (1 + tanh(z)) / 2 is sigmoid(2 z), with z = sqrt(2 / pi) (x + 0.044715 x^3)
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    tl.store(out + row * size + columns, gate / (1 + tl.exp(-slope)) * up, mask=inside)


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """`act(gate) * up`.

    Args:
        gate_up: [T, 2 I] in any float type, gate first, the last dimension contiguous.
        activation: "silu" or "gelu_tanh".

    Returns:
        [T, I] in the type of `gate_up`, contiguous; computed in float32.

    """
    assert activation in ACTIVATIONS, f"activation {activation!r}, expected one of {ACTIVATIONS}"
    rows, width = gate_up.shape
    out = torch.empty(rows, width // 2, dtype=gate_up.dtype, device=gate_up.device)
    if not out.numel():
        return out
    assert gate_up.stride(1) == 1 and width % 2 == 0, f"gate and up {tuple(gate_up.shape)}, strides {gate_up.stride()}"
    kernel: Any = gated_kernel  # its launch takes options that its signature does not show
    kernel[(rows, triton.cdiv(width // 2, BLOCK))](
        gate_up,
        out,
        gate_up.stride(0),
        width // 2,
        IS_SILU=activation == "silu",
        BLOCK=BLOCK,
    )
    return out


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    return [
        CompileCase(
            f"silu.gated_kernel[{kind},{activation}]",
            gated_kernel,
            {"gate_up": f"*{kind}", "out": f"*{kind}", "stride": "i32:16", "size": "i32:16"}
            | dict.fromkeys(("IS_SILU", "BLOCK"), "constexpr"),
            {"IS_SILU": activation == "silu", "BLOCK": BLOCK},
        )
        for kind in ("bf16", "fp16", "fp32")
        for activation in ACTIVATIONS
    ]
