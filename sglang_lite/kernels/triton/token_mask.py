"""Token bitmasks on logits, on a GPU: Triton. Knows no grammar. Oracle: `kernels/reference/token_mask.py`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

BLOCK = 1024
"""Tokens of one program, a multiple of 32."""

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@triton.jit
def token_mask_kernel(
    logits,  # float32, bfloat16 or float16 [B, V], written
    bitmask,  # int32 [B, words]
    rows,  # int64 [n]
    logits_stride,
    bitmask_stride,
    vocab,
    words,
    BLOCK: tl.constexpr,
):
    """Program (i, j) masks tokens `BLOCK * j ...` of row `rows[i]`; what may come is neither read nor written."""
    row = tl.load(rows + tl.program_id(0))
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tokens // 32
    bits = tl.load(bitmask + row * bitmask_stride + word, mask=word < words, other=0)
    is_banned = ((bits >> (tokens % 32)) & 1) == 0
    banned = tl.full((BLOCK,), float("-inf"), tl.float32)
    tl.store(logits + row * logits_stride + tokens, banned, mask=is_banned & (tokens < vocab))


def apply_token_mask(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Set the logits of tokens that may not come to minus infinity, in place. Nothing is checked but types.

    Args:
        logits: float32, bfloat16 or float16 [B, V], the last dimension contiguous, written. Tokens that the bitmask has no bit for may not come.
        bitmask: int32 [B, words], the last dimension contiguous; bit `i % 32` of word `i // 32` is 1 where token i may come.
        rows: int64 [n], the rows to mask, each once; all others stay as they are, and their bitmask is not read.

    """
    assert logits.dtype in FLOATS and bitmask.dtype == torch.int32 and rows.dtype == torch.int64, (
        f"logits of {logits.dtype}, a bitmask of {bitmask.dtype}, rows of {rows.dtype}"
    )
    assert logits.stride(1) == 1 and bitmask.stride(1) == 1, "logits and bitmask are contiguous along the vocabulary"
    if not len(rows):
        return
    vocab = logits.shape[1]
    kernel: Any = token_mask_kernel  # its launch takes options that its signature does not show
    kernel[(len(rows), triton.cdiv(vocab, BLOCK))](
        logits,
        bitmask,
        rows,
        logits.stride(0),
        bitmask.stride(0),
        vocab,
        bitmask.shape[1],
        BLOCK=BLOCK,
    )


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    tables = {"bitmask": "*i32", "rows": "*i64", "logits_stride": "i32", "bitmask_stride": "i32", "vocab": "i32"}
    return [
        CompileCase(
            f"token_mask.token_mask_kernel[{kind}]",
            token_mask_kernel,
            {"logits": f"*{kind}", **tables, "words": "i32", "BLOCK": "constexpr"},
            {"BLOCK": BLOCK},
        )
        for kind in ("fp32", "bf16", "fp16")
    ]
