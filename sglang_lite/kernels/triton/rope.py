"""Rotary positions, on a GPU: Triton. Oracle: `kernels/reference/rope.py`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

HEADS = 8
"""Heads of one program."""


@triton.jit
def rotate_kernel(
    x,  # [T, heads, size], the last dimension contiguous
    cos,  # float32 [T, half]
    sin,  # float32 [T, half]
    out,  # [T, heads, size], contiguous
    token_stride,
    head_stride,
    cos_stride,
    sin_stride,
    heads,
    size,
    half,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    REST: tl.constexpr,
):
    """Program (i, j) turns heads `HEADS * j ...` of token i; REST: how many numbers behind the two halves are copied, or 0."""
    token = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    columns = tl.arange(0, BLOCK)
    inside = (rows < heads)[:, None] & (columns < half)[None, :]
    c = tl.load(cos + token * cos_stride + columns, mask=columns < half, other=0)[None, :]
    s = tl.load(sin + token * sin_stride + columns, mask=columns < half, other=0)[None, :]
    source = x + token * token_stride + rows[:, None] * head_stride
    target = out + (token * heads + rows[:, None]) * size
    first = tl.load(source + columns[None, :], mask=inside, other=0).to(tl.float32)
    second = tl.load(source + half + columns[None, :], mask=inside, other=0).to(tl.float32)
    tl.store(target + columns[None, :], first * c - second * s, mask=inside)
    tl.store(target + half + columns[None, :], second * c + first * s, mask=inside)
    if REST > 0:
        behind = 2 * half + tl.arange(0, REST)[None, :]
        left = (rows < heads)[:, None] & (behind < size)
        tl.store(target + behind, tl.load(source + behind, mask=left, other=0), mask=left)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (i, i + R / 2) of each head's first R numbers; those behind them stay.

    Args:
        heads: [T, n, D] in any float type, the last dimension contiguous; any strides else.
        cos: float32 [T, R / 2], R at most D.
        sin: float32 [T, R / 2].

    Returns:
        As `heads` in shape and type, contiguous; computed in float32.

    """
    tokens, num, size = heads.shape
    half = cos.shape[1]
    assert cos.shape == sin.shape == (tokens, half) and cos.dtype == sin.dtype == torch.float32 and 2 * half <= size, (
        f"angles {tuple(cos.shape)} and {tuple(sin.shape)} of {cos.dtype} for heads {tuple(heads.shape)}"
    )
    out = torch.empty(heads.shape, dtype=heads.dtype, device=heads.device)
    if not out.numel():
        return out
    assert heads.stride(2) == cos.stride(1) == sin.stride(1) == 1, "heads and angles are contiguous along the head"
    kernel: Any = rotate_kernel  # its launch takes options that its signature does not show
    kernel[(tokens, triton.cdiv(num, HEADS))](
        heads,
        cos,
        sin,
        out,
        heads.stride(0),
        heads.stride(1),
        cos.stride(0),
        sin.stride(0),
        num,
        size,
        half,
        HEADS=HEADS,
        BLOCK=triton.next_power_of_2(half),
        REST=triton.next_power_of_2(size - 2 * half) if size > 2 * half else 0,
        num_warps=2,
    )
    return out


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    strides = {f"{name}_stride": "i32:16" for name in ("token", "head", "cos", "sin")}
    rest = {"heads": "i32", "size": "i32:16", "half": "i32:16"}
    return [
        CompileCase(
            f"rope.rotate_kernel[{kind},{block},{behind}]",
            rotate_kernel,
            {"x": f"*{kind}", "cos": "*fp32", "sin": "*fp32", "out": f"*{kind}"}
            | strides
            | rest
            | dict.fromkeys(("HEADS", "BLOCK", "REST"), "constexpr"),
            {"HEADS": HEADS, "BLOCK": block, "REST": behind},
            {"num_warps": 2},
        )
        for kind in ("bf16", "fp16", "fp32")
        for block, behind in ((32, 0), (64, 0), (32, 64))
    ]
