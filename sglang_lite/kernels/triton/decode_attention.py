"""Attention of single tokens over paged keys and values, split over the keys, on a GPU: Triton.

Programs read pieces of keys (see `split_plan.py`) and write partial results; a second kernel combines those of a query
in a fixed order. Oracle: `kernels/reference/decode_attention.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.attention_block import (
    NO,
    Scores,
    attend_keys,
    keys_per_block,
    multiplies_wide,
    nothing_seen,
    padded,
)
from sglang_lite.kernels.triton.compile_case import CompileCase
from sglang_lite.kernels.triton.split_plan import ITEM_FIELDS, MAX_SPLITS, TILE, heads_per_tile, plan_split
from sglang_lite.kernels.triton.split_work import SplitWork

_WARPS, _STAGES = 4, 5
_PROGRAMS_PER_CORE = 4
"""Programs to each multiprocessor: three run at a time, the rest evens out pieces of different lengths."""
_PROGRAMS_ON_CPU = 6


@triton.jit(do_not_specialize=["table_stride", "splits", "window"])
def split_attention_kernel(
    q,  # [T, heads, D], the last dimension contiguous
    k_pages,  # [pages, kv_heads, PAGE, D], contiguous
    v_pages,
    page_table,  # int32 [R, max_pages]
    num_items,  # int32 [1]
    items,  # int32 [n, FIELDS]
    tokens,  # int32 [Q]
    limits,  # int32 [Q]
    sums,  # float32 [Q, splits, heads, D], written
    tops,  # float32 [Q, splits, heads], written
    totals,  # float32 [Q, splits, heads], written
    table_stride,
    q_stride,
    splits,
    inner,
    outer,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE: tl.constexpr,
    FIELDS: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_CAPPED: tl.constexpr,
    IS_WINDOWED: tl.constexpr,
    IS_WIDE: tl.constexpr,
):
    """Program (i, j) does items i, i + programs, ... for block j of query heads."""
    head_blocks: tl.constexpr = (GROUP + TILE_HEADS - 1) // TILE_HEADS
    kv_head = tl.program_id(1) // head_blocks
    lane = tl.arange(0, TILE)
    in_group = tl.program_id(1) % head_blocks * TILE_HEADS + lane % TILE_HEADS
    head = kv_head * GROUP + in_group
    dims = tl.arange(0, D_PAD)
    heads: tl.constexpr = KV_HEADS * GROUP
    k_head = k_pages + kv_head * (PAGE * D)
    v_head = v_pages + kv_head * (PAGE * D)
    no_mask = (limits, 0)
    factors = (inner, outer)
    for index in range(tl.program_id(0), tl.load(num_items), tl.num_programs(0)):
        item = items + index * FIELDS
        first, count, row = tl.load(item), tl.load(item + 1), tl.load(item + 2)
        begin, end, piece = tl.load(item + 3), tl.load(item + 4), tl.load(item + 5)
        member = lane // TILE_HEADS
        there = (member < count) & (in_group < GROUP)
        query = (first + member).to(tl.int64)
        token = tl.load(tokens + query, mask=there, other=0).to(tl.int64)
        limit = tl.load(limits + query, mask=there, other=0)
        lower = limit - window
        if IS_WINDOWED:
            lowest = tl.min(tl.where(there, lower, 2147483647))
            begin = tl.maximum(begin, lowest // BLOCK * BLOCK)
        both = there[:, None] & (dims < D)[None, :]
        q_tile = tl.load(q + (token * q_stride + head * D)[:, None] + dims[None, :], mask=both, other=0.0)
        q_tile = q_tile.to(k_pages.dtype.element_ty)
        if IS_WIDE:
            q_tile = q_tile.to(tl.float32)
        memory = (k_head, v_head, KV_HEADS * PAGE * D, page_table + row.to(tl.int64) * table_stride)
        seen_by = (limit, lower)
        state = nothing_seen(TILE, D_PAD)
        top, total, weighted = attend_keys(
            q_tile, state, memory, begin, end, seen_by, no_mask, factors, D, PAGE, BLOCK, IS_CAPPED, IS_WINDOWED, NO, NO
        )
        cell = (query * splits + piece) * heads + head
        tl.store(tops + cell, top, mask=there)
        tl.store(totals + cell, total, mask=there)
        tl.store(sums + (cell * D)[:, None] + dims[None, :], weighted, mask=both)


@triton.jit(do_not_specialize=["splits"])
def combine_kernel(
    sums,  # float32 [Q, splits, heads, D]
    tops,  # float32 [Q, splits, heads]
    totals,  # float32 [Q, splits, heads]
    tokens,  # int32 [Q]
    limits,  # int32 [Q]
    pieces,  # int32 [Q]
    out,  # [T, heads, D], the tokens' rows written
    splits,
    out_stride,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):
    """Program (i, j) combines head j of query i. The number of pieces does not change the order of the sums."""
    query = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    size = tl.load(pieces + query)
    piece = tl.arange(0, MAX_SPLITS)
    there = piece * size < tl.load(limits + query)
    cell = (query * splits + piece) * HEADS + head
    top = tl.load(tops + cell, mask=there, other=float("-inf"))
    weight = tl.exp2(top - tl.max(top))
    total = tl.sum(weight * tl.load(totals + cell, mask=there, other=0.0))
    dims = tl.arange(0, D_PAD)
    both = there[:, None] & (dims < D)[None, :]
    parts = tl.load(sums + (cell * D)[:, None] + dims[None, :], mask=both, other=0.0)
    result = tl.sum(parts * weight[:, None], 0) / total  # pyright: ignore[reportOperatorIssue] - tensors both
    token = tl.load(tokens + query).to(tl.int64)
    tl.store(out + token * out_stride + head * D + dims, result.to(out.dtype.element_ty), mask=dims < D)


@functools.cache
def _most_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return _PROGRAMS_ON_CPU
    return torch.cuda.get_device_properties(device).multi_processor_count * _PROGRAMS_PER_CORE


def split_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    work: SplitWork,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> None:
    """Attend for the queries of `work`; the launches depend on the room of `work` alone, not on what fills it.

    Args:
        q: [T, query heads, head_dim], heads contiguous; of the pages' type or float32 (rounded to the pages' type).
        k_pages: [pages, kv_heads, page_size, head_dim], contiguous.
        v_pages: as `k_pages`.
        page_table: int32 [R, max_pages], its rows contiguous.
        work: who reads what.
        out: [T, query heads, head_dim], heads contiguous; the rows of the queries' tokens are written.
        scale: factor on the scores.
        window: tokens that a token sees, itself included; None: all up to itself.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)`; None: they stay.

    """
    _, heads, head_dim = q.shape
    kv_heads, page_size = k_pages.shape[1:3]
    assert q.stride()[1:] == (head_dim, 1) == out.stride()[1:], f"heads of q lie {q.stride()}, of out {out.stride()}"
    assert k_pages.is_contiguous() and v_pages.is_contiguous(), "pages are contiguous"
    assert page_table.dtype == torch.int32 and page_table.stride(1) == 1, f"page table {page_table.dtype}"
    if not work.queries:
        return
    scores = Scores.of(scale, window, soft_cap)
    group = heads // kv_heads
    is_wide = multiplies_wide(k_pages.dtype, q.device)
    tile_heads = heads_per_tile(group)
    blocks = kv_heads * triton.cdiv(group, tile_heads)
    programs = max(1, min(work.max_items, triton.cdiv(_most_programs(q.device), blocks)))
    split_kernel: Any = split_attention_kernel  # its launch takes options that its signature does not show
    split_kernel[(programs, blocks)](
        q,
        k_pages,
        v_pages,
        page_table,
        work.num_items,
        work.items,
        work.tokens,
        work.limits,
        work.sums,
        work.tops,
        work.totals,
        page_table.stride(0),
        q.stride(0),
        work.splits,
        scores.inner,
        scores.outer,
        scores.window,
        **_constants(kv_heads, group, head_dim, page_size, k_pages.dtype, scores, is_wide),
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    second_kernel: Any = combine_kernel
    second_kernel[(work.queries, heads)](
        work.sums,
        work.tops,
        work.totals,
        work.tokens,
        work.limits,
        work.pieces,
        out,
        work.splits,
        out.stride(0),
        **_combine_constants(heads, head_dim),
        num_warps=_WARPS,
    )


def decode_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """One new token a row, whose own key is stored; plans on the host, so it waits for `seq_lens` and the page table.

    Args:
        q: [R, query heads, head_dim].
        k_pages: as in `split_attention`, and so are the others.
        v_pages: likewise.
        page_table: int32 [R, max_pages].
        seq_lens: int32 [R], new tokens included.
        scale: likewise.
        window: likewise.
        soft_cap: likewise.

    Returns:
        [R, query heads, head_dim], of the type of `q`.

    """
    return attend_tokens(q, k_pages, v_pages, page_table, seq_lens, scale, window, soft_cap, share=False)


def attend_tokens(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None,
    soft_cap: float | None,
    *,
    share: bool,
) -> torch.Tensor:
    """As `decode_attention`; with `share`, first pages that rows have in common are read once for several of them."""
    rows, heads, head_dim = q.shape
    index = torch.arange(rows, dtype=torch.int32).numpy()
    group = heads // k_pages.shape[1]
    lens, table = seq_lens.cpu().numpy(), page_table.cpu().numpy()
    plan = plan_split(index, index, lens, table, k_pages.shape[2], group, share=share)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    work = SplitWork.of(plan, heads, head_dim, q.device)
    split_attention(q, k_pages, v_pages, page_table, work, out, scale, window, soft_cap)
    return out


def _constants(
    kv_heads: int, group: int, head_dim: int, page_size: int, dtype: torch.dtype, scores: Scores, is_wide: bool
) -> dict[str, int | bool]:
    return {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "TILE_HEADS": heads_per_tile(group),
        "TILE": TILE,
        "FIELDS": ITEM_FIELDS,
        "D": head_dim,
        "D_PAD": padded(head_dim),
        "PAGE": page_size,
        "BLOCK": keys_per_block(head_dim, dtype),
        "IS_CAPPED": scores.is_capped,
        "IS_WINDOWED": scores.window > 0,
        "IS_WIDE": is_wide,
    }


def _combine_constants(heads: int, head_dim: int) -> dict[str, int]:
    return {"HEADS": heads, "D": head_dim, "D_PAD": padded(head_dim), "MAX_SPLITS": MAX_SPLITS}


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    lists = dict.fromkeys(("page_table", "num_items", "items", "tokens", "limits"), "*i32")
    partials = dict.fromkeys(("sums", "tops", "totals"), "*fp32")
    numbers = {"table_stride": "i32", "q_stride": "i32:16", "splits": "i32", "inner": "fp32", "outer": "fp32"}
    options = {"num_warps": _WARPS, "num_stages": _STAGES}
    sizes = {  # kv heads, group, head_dim, type, window, soft cap
        "bf16, 8 x 4 heads of 128": (8, 4, 128, torch.bfloat16, None, None),
        "fp16, 3 x 3 heads of 64, window and soft cap": (3, 3, 64, torch.float16, 100, 30.0),
        "bf16, 2 x 20 heads of 80": (2, 20, 80, torch.bfloat16, None, None),
        "bf16, 4 x 2 heads of 256, soft cap": (4, 2, 256, torch.bfloat16, None, 50.0),
        "fp32, 3 x 3 heads of 64": (3, 3, 64, torch.float32, None, None),
    }
    kinds = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
    cases: list[CompileCase] = []
    for name, (kv_heads, group, head_dim, dtype, window, cap) in sizes.items():
        pointers = dict.fromkeys(("q", "k_pages", "v_pages"), kinds[dtype])
        constants = _constants(kv_heads, group, head_dim, 16, dtype, Scores.of(1.0, window, cap), False)
        signature = pointers | lists | partials | numbers | {"window": "i32"} | dict.fromkeys(constants, "constexpr")
        whole = f"decode_attention.split_attention_kernel[{name}]"
        cases.append(CompileCase(whole, split_attention_kernel, signature, constants, options))
    for kind in ("bf16", "fp16", "fp32"):
        constants = _combine_constants(32, 128)
        pointers = partials | dict.fromkeys(("tokens", "limits", "pieces"), "*i32") | {"out": f"*{kind}"}
        signature = pointers | {"splits": "i32", "out_stride": "i32:16"} | dict.fromkeys(constants, "constexpr")
        whole = f"decode_attention.combine_kernel[{kind}]"
        cases.append(CompileCase(whole, combine_kernel, signature, constants, {"num_warps": _WARPS}))
    return cases
