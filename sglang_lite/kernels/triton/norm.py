"""RMS norm, with and without adding to the residual stream, on a GPU: Triton. Oracle: `kernels/reference/norm.py`.

A row is one program, summed in float32 in one order whatever the other rows are, and rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

MAX_SIZE = 65536


@triton.jit
def rms_norm_kernel(
    x,  # [T, n, size], the last dimension contiguous
    weight,  # [size]
    out,  # [T, n, size], contiguous
    token_stride,
    head_stride,
    heads,
    size,
    eps,
    BLOCK: tl.constexpr,
):
    """Program i normalises vector `i % heads` of token `i // heads`."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    start = x + (row // heads) * token_stride + (row % heads) * head_stride
    values = tl.load(start + columns, mask=inside, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / size + eps)
    factors = tl.load(weight + columns, mask=inside, other=0).to(tl.float32)
    tl.store(out + row * size + columns, values * scale * factors, mask=inside)


@triton.jit
def add_rms_norm_kernel(
    x,  # [T, size]
    residual,  # [T, size]
    weight,  # [size]
    out,  # [T, size], contiguous
    total,  # [T, size], contiguous
    x_stride,
    residual_stride,
    size,
    eps,
    BLOCK: tl.constexpr,
):
    """Program i adds row i, rounds the sum to its type, and normalises what was rounded."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    values = tl.load(x + row * x_stride + columns, mask=inside, other=0).to(tl.float32)
    values += tl.load(residual + row * residual_stride + columns, mask=inside, other=0).to(tl.float32)
    rounded = values.to(total.dtype.element_ty)
    tl.store(total + row * size + columns, rounded, mask=inside)
    values = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / size + eps)
    factors = tl.load(weight + columns, mask=inside, other=0).to(tl.float32)
    tl.store(out + row * size + columns, values * scale * factors, mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis.

    Args:
        x: [T, H] or [T, n, H] (the heads of T tokens) in any float type, the last dimension contiguous; any strides else.
        weight: [H].
        eps: added to the mean square.

    Returns:
        As x in shape and type, contiguous; computed in float32.

    """
    size = x.shape[-1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads = x.shape[1] if x.dim() == 3 else 1
    if not out.numel():
        return out
    _check(x, weight)
    block, num_warps = _shape(size)
    kernel: Any = rms_norm_kernel  # its launch takes options that its signature does not show
    kernel[(len(x) * heads,)](
        x,
        weight,
        out,
        x.stride(0),
        x.stride(1) if x.dim() == 3 else 0,
        heads,
        size,
        eps,
        BLOCK=block,
        num_warps=num_warps,
    )
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x + residual` and its norm, by one kernel, equal to the two one after the other.

    Args:
        x: [T, H] in any float type, the last dimension contiguous.
        residual: as x in shape and type.
        weight: [H].
        eps: added to the mean square.

    Returns:
        The normed sum and the sum, both as x in shape and type.

    """
    assert x.dim() == 2 and residual.shape == x.shape and residual.dtype == x.dtype, (
        f"a residual {tuple(residual.shape)} of {residual.dtype} for x {tuple(x.shape)} of {x.dtype}"
    )
    size = x.shape[1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    if not len(x):
        return out, total
    _check(x, weight)
    assert residual.stride(1) == 1, f"a residual with strides {residual.stride()}"
    block, num_warps = _shape(size)
    kernel: Any = add_rms_norm_kernel  # its launch takes options that its signature does not show
    kernel[(len(x),)](
        x,
        residual,
        weight,
        out,
        total,
        x.stride(0),
        residual.stride(0),
        size,
        eps,
        BLOCK=block,
        num_warps=num_warps,
    )
    return out, total


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    assert x.dim() in (2, 3) and x.stride(-1) == 1 and weight.shape == x.shape[-1:] and weight.is_contiguous(), (
        f"x {tuple(x.shape)} with strides {x.stride()}, a weight {tuple(weight.shape)}"
    )
    assert 1 <= x.shape[-1] <= MAX_SIZE, f"rows of {x.shape[-1]} numbers, at most {MAX_SIZE}"


def _shape(size: int) -> tuple[int, int]:
    """Block and warps: 8 to 64 numbers a thread."""
    block = triton.next_power_of_2(size)
    return block, min(max(block // 256, 1), 16)


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    cases: list[CompileCase] = []
    for kind in ("bf16", "fp16", "fp32"):
        for size in (64, 4096):
            block, num_warps = _shape(size)
            rest = {"size": "i32:16", "eps": "fp32", "BLOCK": "constexpr"}
            strides = {"token_stride": "i32:16", "head_stride": "i32:16", "heads": "i32"}
            cases.append(
                CompileCase(
                    f"norm.rms_norm_kernel[{kind},{size}]",
                    rms_norm_kernel,
                    dict.fromkeys(("x", "weight", "out"), f"*{kind}") | strides | rest,
                    {"BLOCK": block},
                    {"num_warps": num_warps},
                )
            )
            names = ("x", "residual", "weight", "out", "total")
            cases.append(
                CompileCase(
                    f"norm.add_rms_norm_kernel[{kind},{size}]",
                    add_rms_norm_kernel,
                    dict.fromkeys(names, f"*{kind}") | {"x_stride": "i32:16", "residual_stride": "i32:16"} | rest,
                    {"BLOCK": block},
                    {"num_warps": num_warps},
                )
            )
    return cases
