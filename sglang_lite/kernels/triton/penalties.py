"""Penalties and biases on logits, on a GPU: Triton. Oracle: `kernels/reference/penalties.py`. Draws nothing.

A row's tokens come as a list, each once, so that no two programs write one logit. Products, sums and quotients are rounded
one by one, as on the host: the results are equal to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

BLOCK = 512
PROGRAMS = 8
"""Programs of one row; a list may have any length that the host need not know."""


@triton.jit
def penalties_kernel(
    logits,  # float32 [B, V], written
    rows,  # int64 [P]
    starts,  # int32 [P + 1]
    ids,  # int64 [N]
    counts,  # int32 [N]
    repetition,  # float32 [P]
    frequency,  # float32 [P]
    presence,  # float32 [P]
    stride,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Program (i, j) changes every `PROGRAMS`-th block of list i."""
    item = tl.program_id(0)
    row = tl.load(rows + item)
    stop = tl.load(starts + item + 1)
    again, often, once = tl.load(repetition + item), tl.load(frequency + item), tl.load(presence + item)
    for first in range(tl.load(starts + item) + tl.program_id(1) * BLOCK, stop, PROGRAMS * BLOCK):
        places = first + tl.arange(0, BLOCK)
        inside = places < stop
        targets = logits + row * stride + tl.load(ids + places, mask=inside, other=0)
        values = tl.load(targets, mask=inside, other=0)
        count = tl.load(counts + places, mask=inside, other=0)
        values = tl.where(values > 0, tl.div_rn(values, tl.zeros_like(values) + again), values * again)
        lowered = values - (count.to(tl.float32) * often + once)
        tl.store(targets, tl.where(count > 0, lowered, values), mask=inside)


@triton.jit
def bias_kernel(logits, rows, starts, ids, biases, stride, BLOCK: tl.constexpr):
    """Program i adds list i."""
    item = tl.program_id(0)
    row = tl.load(rows + item)
    stop = tl.load(starts + item + 1)
    for first in range(tl.load(starts + item), stop, BLOCK):
        places = first + tl.arange(0, BLOCK)
        inside = places < stop
        targets = logits + row * stride + tl.load(ids + places, mask=inside, other=0)
        bias = tl.load(biases + places, mask=inside, other=0)
        tl.store(targets, tl.load(targets, mask=inside, other=0) + bias, mask=inside)


def apply(
    logits: torch.Tensor,
    rows: torch.Tensor,
    starts: torch.Tensor,
    ids: torch.Tensor,
    counts: torch.Tensor,
    repetition: torch.Tensor,
    frequency: torch.Tensor,
    presence: torch.Tensor,
) -> None:
    """Repetition penalty, then frequency and presence penalty, in place.

    Args:
        logits: float32 [B, V], the last dimension contiguous, written.
        rows: int64 [P], the rows to change, each once.
        starts: int32 [P + 1]; row `rows[i]` has seen the tokens `ids[starts[i]:starts[i + 1]]`.
        ids: int64 [N], each once in its list, inside the vocabulary.
        counts: int32 [N], how often the token was generated; 0: it stands in the prompt only.
        repetition: float32 [P]; positive logits of seen tokens are divided by it, others multiplied.
        frequency: float32 [P], subtracted for each time that a token was generated.
        presence: float32 [P], subtracted once from tokens that were generated.

    """
    _check(logits, rows, starts, ids)
    assert counts.dtype == torch.int32 and counts.shape == ids.shape, f"counts {tuple(counts.shape)} of {counts.dtype}"
    factors = (repetition, frequency, presence)
    assert all(f.dtype == torch.float32 and f.shape == rows.shape for f in factors), [tuple(f.shape) for f in factors]
    if not len(rows):
        return
    kernel: Any = penalties_kernel  # its launch takes options that its signature does not show
    kernel[(len(rows), PROGRAMS)](
        logits, rows, starts, ids, counts, *factors, logits.stride(0),
        BLOCK=BLOCK, PROGRAMS=PROGRAMS, enable_fp_fusion=False,
    )  # fmt: skip


def add_bias(
    logits: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ids: torch.Tensor, biases: torch.Tensor
) -> None:
    """Add `biases`, float32 [N], in place; all else as in `apply`."""
    _check(logits, rows, starts, ids)
    assert biases.dtype == torch.float32 and biases.shape == ids.shape, f"biases {tuple(biases.shape)}, {biases.dtype}"
    if len(rows):
        kernel: Any = bias_kernel  # its launch takes options that its signature does not show
        kernel[(len(rows),)](logits, rows, starts, ids, biases, logits.stride(0), BLOCK=BLOCK)


def _check(logits: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ids: torch.Tensor) -> None:
    assert logits.dtype == torch.float32 and (not len(logits) or logits.stride(1) == 1), (
        f"logits of {logits.dtype} with strides {logits.stride()}"
    )
    assert rows.dtype == ids.dtype == torch.int64 and starts.dtype == torch.int32 and len(starts) == len(rows) + 1, (
        f"rows {tuple(rows.shape)} of {rows.dtype}, starts {tuple(starts.shape)} of {starts.dtype}, ids of {ids.dtype}"
    )


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    lists = {"logits": "*fp32", "rows": "*i64", "starts": "*i32", "ids": "*i64"}
    factors = dict.fromkeys(("repetition", "frequency", "presence"), "*fp32")
    return [
        CompileCase(
            "penalties.penalties_kernel",
            penalties_kernel,
            lists | {"counts": "*i32"} | factors | {"stride": "i32", "BLOCK": "constexpr", "PROGRAMS": "constexpr"},
            {"BLOCK": BLOCK, "PROGRAMS": PROGRAMS},
            {"enable_fp_fusion": False},
        ),
        CompileCase(
            "penalties.bias_kernel",
            bias_kernel,
            lists | {"biases": "*fp32", "stride": "i32", "BLOCK": "constexpr"},
            {"BLOCK": BLOCK},
        ),
    ]
