"""The inner loop of all attention kernels: one tile of queries over keys in pages. Knows no batch and launches nothing.

The softmax runs online in float32, in base 2. Blocks of keys begin at absolute positions, and what a query does not see
counts exactly nothing, so a query's numbers do not depend on the other queries of its tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634

YES = tl.constexpr(True)
NO = tl.constexpr(False)


@dataclass(frozen=True)
class Scores:
    """What turns products of queries and keys into exponents of 2, for the kernels.

    Attributes:
        inner: factor on the products.
        outer: with a soft cap, the factor on the hyperbolic tangent; else unused.
        window: keys that a query sees, itself included; 0: all.
        is_capped: whether there is a soft cap.

    """

    inner: float
    outer: float
    window: int
    is_capped: bool

    @staticmethod
    def of(scale: float, window: int | None, soft_cap: float | None) -> Scores:
        """From the terms of `kernels/reference/paged_attention.py`."""
        if soft_cap is None:
            return Scores(scale * LOG2_E, 1.0, window or 0, False)
        return Scores(scale / soft_cap * 2 * LOG2_E, soft_cap * LOG2_E, window or 0, True)


def padded(head_dim: int) -> int:
    """The head dimension as the kernels' tiles have it: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(head_dim))


def keys_per_block(head_dim: int, dtype: torch.dtype) -> int:
    """Keys of one step of the loop: 16 KiB of them, so that three stages of keys and values fit into any GPU here."""
    return min(64, max(16, 16384 // (padded(head_dim) * dtype.itemsize)))


def multiplies_wide(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether products of pages of `dtype` are taken in float32: Triton's interpreter knows no product of bfloat16."""
    return dtype == torch.bfloat16 and device.type != "cuda"


@triton.jit
def nothing_seen(TILE: tl.constexpr, D_PAD: tl.constexpr):
    """The state of `attend_keys` before the first key."""
    return (
        tl.full((TILE,), float("-inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
        tl.zeros((TILE, D_PAD), tl.float32),
    )


@triton.jit
def attend_keys(
    q,  # [M, D_PAD], of the type that is multiplied in
    state,  # float32 [M], the largest exponent so far; [M], the sum of weights; [M, D_PAD], weighted values
    memory,  # keys and values of one kv head in page 0, elements from page to page, and the page ids of the sequence
    begin,  # first key, a multiple of BLOCK
    end,  # no key from here on
    seen_by,  # int32 [M], each query sees keys below; int32 [M], and from here on
    mask,  # [M] pointers to the query's row of the mask, and the key that it begins with
    factors,  # of `Scores`: inner, outer
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_CAPPED: tl.constexpr,
    IS_WINDOWED: tl.constexpr,
    HAS_MASK: tl.constexpr,
    IS_WHOLE: tl.constexpr,  # every query sees every key of the range, which ends on a whole block
):
    """Go on with keys `begin:end`; returns the state after them."""
    top, total, sums = state
    k_head, v_head, page_stride, table = memory
    limits, lowers = seen_by
    mask_rows, mask_begin = mask
    inner, outer = factors
    D_PAD: tl.constexpr = q.shape[1]
    dims = tl.arange(0, D_PAD)
    for first in range(begin, end, BLOCK):
        keys = first + tl.arange(0, BLOCK)
        if IS_WHOLE:
            pages = tl.load(table + keys // PAGE).to(tl.int64)
        else:
            pages = tl.load(table + keys // PAGE, mask=keys < end, other=0).to(tl.int64)
        places = pages * page_stride + keys % PAGE * D
        at = places[:, None] + dims[None, :]
        if IS_WHOLE and D == D_PAD:
            k = tl.load(k_head + at)
            v = tl.load(v_head + at)
        else:
            there = (keys < end)[:, None] & (dims < D)[None, :]
            k = tl.load(k_head + at, mask=there, other=0.0)
            v = tl.load(v_head + at, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="tf32x3") * inner
        if IS_CAPPED:
            s = outer * (1.0 - 2.0 / (tl.exp2(s) + 1.0))
        if not IS_WHOLE:
            seen = keys[None, :] < limits[:, None]
            if IS_WINDOWED:
                seen = seen & (keys[None, :] >= lowers[:, None])
            if HAS_MASK:
                new = keys - mask_begin
                bits = tl.load(mask_rows[:, None] + new[None, :], mask=seen & (new >= 0)[None, :], other=1)
                seen = seen & (bits != 0)
            s = tl.where(seen, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        # A query that has seen nothing yet: 2 ** (-inf - 0) is 0, where 2 ** (-inf - -inf) is no number.
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(s - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(weights, 1)
        sums = sums * fade[:, None]
        sums = tl.dot(weights.to(v.dtype).to(q.dtype), v.to(q.dtype), sums, input_precision="tf32x3")
        top = new_top
    return top, total, sums
