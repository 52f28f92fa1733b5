"""Write new keys and values into their pages, on a GPU: Triton. Knows no sequence. Oracle: `kernels/reference/store_kv.py`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

_MOST_NUMBERS = 2048
"""Numbers of keys, and as many of values, that one program copies."""
_WARPS = 4


@triton.jit
def store_kv_kernel(
    k,  # [T, kv_heads, D], heads contiguous
    v,  # [T, kv_heads, D], heads contiguous
    k_pages,  # [pages, kv_heads, PAGE, D], written
    v_pages,  # likewise
    slots,  # int64 [T]
    k_stride,
    v_stride,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, j) stores numbers `BLOCK * j ...` of the heads of token i."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    numbers = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = numbers < KV_HEADS * D
    place = ((slot // PAGE * KV_HEADS + numbers // D) * PAGE + slot % PAGE) * D + numbers % D
    kind = k_pages.dtype.element_ty
    tl.store(k_pages + place, tl.load(k + token * k_stride + numbers, mask=there).to(kind), mask=there)
    tl.store(v_pages + place, tl.load(v + token * v_stride + numbers, mask=there).to(kind), mask=there)


def store_kv(
    k: torch.Tensor, v: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, slots: torch.Tensor
) -> None:
    """Put token t's key and value into slot `slots[t]` (`page * page_size + offset`).

    Args:
        k: [T, kv_heads, head_dim], heads contiguous; float32, bfloat16 or float16.
        v: as `k`.
        k_pages: [pages, kv_heads, page_size, head_dim], contiguous, written; the numbers are rounded to its type.
        v_pages: as `k_pages`, written.
        slots: int64 [T]; unique, except that any number may lie in page 0, which then holds any of them.

    """
    _, kv_heads, head_dim = k.shape
    assert slots.dtype == torch.int64, f"slots of {slots.dtype}, expected int64"
    assert k.stride()[1:] == (head_dim, 1) == v.stride()[1:], f"heads of k lie {k.stride()}, of v {v.stride()}"
    assert k_pages.is_contiguous() and v_pages.is_contiguous(), "pages are contiguous"
    if not len(slots):
        return
    constants = _constants(kv_heads, head_dim, k_pages.shape[2])
    grid = (len(slots), triton.cdiv(kv_heads * head_dim, constants["BLOCK"]))
    kernel: Any = store_kv_kernel  # its launch takes options that its signature does not show
    kernel[grid](k, v, k_pages, v_pages, slots, k.stride(0), v.stride(0), **constants, num_warps=_WARPS)


def _constants(kv_heads: int, head_dim: int, page_size: int) -> dict[str, int]:
    block = min(_MOST_NUMBERS, triton.next_power_of_2(kv_heads * head_dim))
    return {"KV_HEADS": kv_heads, "D": head_dim, "PAGE": page_size, "BLOCK": block}


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    cases: list[CompileCase] = []
    for new, stored in (("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), ("fp32", "bf16")):
        constants = _constants(8, 128, 16)
        pointers = {"k": f"*{new}", "v": f"*{new}", "k_pages": f"*{stored}", "v_pages": f"*{stored}"}
        signature = pointers | {"slots": "*i64", "k_stride": "i32:16", "v_stride": "i32:16"}
        signature |= dict.fromkeys(constants, "constexpr")
        name = f"store_kv.store_kv_kernel[{new} to {stored}]"
        cases.append(CompileCase(name, store_kv_kernel, signature, constants, {"num_warps": _WARPS}))
    return cases
