"""Attention of rows of several new tokens over paged keys and values, on a GPU: Triton.

A program takes a tile of one row: neighbouring new tokens with the query heads of one kv head, over all keys they see.
Oracle: `kernels/reference/extend_attention.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from sglang_lite.kernels.triton.attention_block import (
    NO,
    YES,
    Scores,
    attend_keys,
    keys_per_block,
    multiplies_wide,
    nothing_seen,
    padded,
)
from sglang_lite.kernels.triton.compile_case import CompileCase


@dataclass(frozen=True)
class TileSize:
    """Rows of a tile's matrices (new tokens times query heads), with how a program runs it."""

    rows: int
    warps: int
    stages: int = 3


FIXED = TileSize(64, 4)
"""What deterministic results of 16-bit pages are made with: which instructions multiply may depend on the rows of a tile."""
LARGE = TileSize(128, 8, 5)

_LARGE_FROM = 512
"""Query heads of the longest row from which large tiles fill up and read the keys half as often."""


def tile_size(most_new: int, group: int, head_dim: int, dtype: torch.dtype) -> TileSize:
    """The fastest tile for rows of up to `most_new` new tokens; depends on the batch.

    Args:
        most_new: new tokens of the longest row.
        group: query heads per kv head.
        head_dim: of a head.
        dtype: of the pages.

    """
    fits = padded(head_dim) * dtype.itemsize <= 256 and dtype.itemsize == 2
    return LARGE if fits and most_new * group >= _LARGE_FROM else fixed_size(head_dim, dtype)


def fixed_size(head_dim: int, dtype: torch.dtype) -> TileSize:
    """The tile that depends on nothing of a batch; with float32, whose products in three passes keep copies of their factors, one
    that the smallest GPUs have the shared memory for, 99 KiB.
    """
    wide = padded(head_dim) * dtype.itemsize
    return FIXED if dtype.itemsize == 2 or wide <= 256 else TileSize(max(16, 16384 // wide), 4, 2)


def plan_tiles(
    new_lens: NDArray[np.int32], seq_lens: NDArray[np.int32], group: int, size: TileSize
) -> NDArray[np.int32]:
    """The tiles of all rows, those with the most keys first, so that no long one is left at the end.

    Args:
        new_lens: int32 [R], new tokens of each row; rows of none have no tile.
        seq_lens: int32 [R], new tokens included.
        group: query heads per kv head.
        size: of a tile.

    Returns:
        int32 [n, 2]: the row, and the first of its new tokens.

    """
    tokens = size.rows // min(group, size.rows)
    counts = -(-new_lens // tokens)
    rows = np.repeat(np.arange(len(new_lens)), counts)
    first = (np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)) * tokens
    keys = (seq_lens - new_lens)[rows] + np.minimum(first + tokens, new_lens[rows])
    order = np.argsort(-keys, kind="stable")
    return np.stack((rows[order], first[order]), axis=1).astype(np.int32)


@triton.jit(do_not_specialize=["table_stride", "window"])
def extend_attention_kernel(
    q,  # [T, heads, D], heads contiguous
    k_pages,  # [pages, kv_heads, PAGE, D], contiguous
    v_pages,
    page_table,  # int32 [R, max_pages]
    q_starts,  # int32 [R + 1]
    seq_lens,  # int32 [R]
    tiles,  # int32 [n, 2]
    mask,  # uint8, or anything
    mask_starts,  # int64 [R], or anything
    out,  # [T, heads, D], written
    table_stride,
    q_stride,
    out_stride,
    inner,
    outer,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_CAPPED: tl.constexpr,
    IS_WINDOWED: tl.constexpr,
    IS_WIDE: tl.constexpr,
    HAS_MASK: tl.constexpr,
):
    """Program (i, j) does tile i for block j of query heads."""
    row = tl.load(tiles + tl.program_id(0) * 2)
    first = tl.load(tiles + tl.program_id(0) * 2 + 1)
    start = tl.load(q_starts + row)
    num_new = tl.load(q_starts + row + 1) - start
    prefix = tl.load(seq_lens + row) - num_new
    head_blocks: tl.constexpr = (GROUP + TILE_HEADS - 1) // TILE_HEADS
    tile_tokens: tl.constexpr = TILE // TILE_HEADS
    kv_head = tl.program_id(1) // head_blocks
    lane = tl.arange(0, TILE)
    in_group = tl.program_id(1) % head_blocks * TILE_HEADS + lane % TILE_HEADS
    new = first + lane // TILE_HEADS
    there = (new < num_new) & (lane // TILE_HEADS < tile_tokens) & (in_group < GROUP)
    token = (start + new).to(tl.int64)
    head = kv_head * GROUP + in_group
    dims = tl.arange(0, D_PAD)
    both = there[:, None] & (dims < D)[None, :]
    q_tile = tl.load(q + (token * q_stride + head * D)[:, None] + dims[None, :], mask=both, other=0.0)
    q_tile = q_tile.to(k_pages.dtype.element_ty)
    if IS_WIDE:
        q_tile = q_tile.to(tl.float32)
    limit = prefix + new + 1
    end = prefix + tl.minimum(first + tile_tokens, num_new)
    begin = 0
    whole_end = (prefix + first + 1) // BLOCK * BLOCK
    masks = (mask + lane, 0)
    if HAS_MASK:
        mask_start = tl.load(mask_starts + row)
        mask_rows = mask + tl.maximum(mask_start, 0) + tl.where(there, new, 0).to(tl.int64) * num_new
        # A row without a mask has all its keys before where the mask would begin.
        masks = (mask_rows, tl.where(mask_start >= 0, prefix, 2147483647))
        whole_end = prefix // BLOCK * BLOCK
    if IS_WINDOWED:
        begin = tl.maximum(prefix + first + 1 - window, 0) // BLOCK * BLOCK
        whole_end = begin
    table = page_table + row.to(tl.int64) * table_stride
    kv = (k_pages + kv_head * (PAGE * D), v_pages + kv_head * (PAGE * D), KV_HEADS * PAGE * D, table)
    sees = (limit, limit - window)
    factors = (inner, outer)
    state = nothing_seen(TILE, D_PAD)
    if not IS_WINDOWED:
        state = attend_keys(
            q_tile, state, kv, begin, whole_end, sees, masks, factors, D, PAGE, BLOCK, IS_CAPPED, NO, NO, YES
        )
    _, total, sums = attend_keys(
        q_tile, state, kv, whole_end, end, sees, masks, factors, D, PAGE, BLOCK, IS_CAPPED, IS_WINDOWED, HAS_MASK, NO
    )
    # Lanes of no token have seen nothing.
    result = sums / tl.where(there, total, 1.0)[:, None]
    tl.store(out + (token * out_stride + head * D)[:, None] + dims[None, :], result.to(out.dtype.element_ty), mask=both)


def attend_tiles(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    q_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    tiles: torch.Tensor,
    size: TileSize,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    mask: torch.Tensor | None = None,
    mask_starts: torch.Tensor | None = None,
) -> None:
    """Attend for the tiles of a plan.

    Args:
        q: as in `extend_attention`, and so are the next ones.
        k_pages: likewise.
        v_pages: likewise.
        page_table: likewise.
        q_starts: likewise.
        seq_lens: likewise.
        tiles: int32 [n, 2] of `plan_tiles`.
        size: what they were planned with.
        out: [T, query heads, head_dim], heads contiguous; the rows of the tiles' tokens are written.
        scale: as in `extend_attention`, and so are the next ones.
        window: likewise.
        soft_cap: likewise.
        mask: likewise.
        mask_starts: likewise.

    """
    _, heads, head_dim = q.shape
    kv_heads, page_size = k_pages.shape[1:3]
    assert q.stride()[1:] == (head_dim, 1) == out.stride()[1:], f"heads of q lie {q.stride()}, of out {out.stride()}"
    assert k_pages.is_contiguous() and v_pages.is_contiguous(), "pages are contiguous"
    assert page_table.dtype == torch.int32 and page_table.stride(1) == 1, f"page table {page_table.dtype}"
    assert (mask is None) == (mask_starts is None), "a mask needs the starts of its rows, and they it"
    if not len(tiles):
        return
    scores = Scores.of(scale, window, soft_cap)
    is_wide = multiplies_wide(k_pages.dtype, q.device)
    sizes = (kv_heads, heads // kv_heads, head_dim, page_size, k_pages.dtype)
    constants = _constants(*sizes, scores, size.rows, mask is not None, is_wide)
    head_blocks = triton.cdiv(heads // kv_heads, int(constants["TILE_HEADS"]))
    kernel: Any = extend_attention_kernel  # its launch takes options that its signature does not show
    kernel[(len(tiles), kv_heads * head_blocks)](
        q,
        k_pages,
        v_pages,
        page_table,
        q_starts,
        seq_lens,
        tiles,
        tiles if mask is None else mask.view(torch.uint8),
        tiles if mask_starts is None else mask_starts,
        out,
        page_table.stride(0),
        q.stride(0),
        out.stride(0),
        scores.inner,
        scores.outer,
        scores.window,
        **constants,
        num_warps=size.warps,
        num_stages=size.stages,
    )


def extend_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    q_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    mask: torch.Tensor | None = None,
    mask_starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of new tokens, whose own keys are stored; plans on the host, so it waits for the lengths.

    Args:
        q: [T, query heads, head_dim], heads contiguous; of the pages' type or float32 (rounded to the pages' type).
        k_pages: [pages, kv_heads, page_size, head_dim], contiguous.
        v_pages: as `k_pages`.
        page_table: int32 [R, max_pages], its rows contiguous.
        q_starts: int32 [R + 1], row r owns tokens `q_starts[r]:q_starts[r + 1]`.
        seq_lens: int32 [R], new tokens included.
        scale: factor on the scores.
        window: tokens that a token sees, itself included; None: all up to itself.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)`; None: they stay.
        mask: bool, matrices one after another: whether a row's new token (rows of the matrix) sees another (columns).
            It only hides; every token sees itself. None: none is hidden.
        mask_starts: int64 [R], where each row's matrix begins in `mask`, -1: it has none.

    Returns:
        [T, query heads, head_dim], of the type of `q`.

    """
    group = q.shape[1] // k_pages.shape[1]
    new_lens = q_starts.diff().cpu().numpy()
    size = tile_size(int(new_lens.max(initial=0)), group, q.shape[2], k_pages.dtype)
    tiles = torch.from_numpy(plan_tiles(new_lens, seq_lens.cpu().numpy(), group, size)).to(q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    options = (scale, window, soft_cap, mask, mask_starts)
    attend_tiles(q, k_pages, v_pages, page_table, q_starts, seq_lens, tiles, size, out, *options)
    return out


def _constants(
    kv_heads: int,
    group: int,
    head_dim: int,
    page_size: int,
    dtype: torch.dtype,
    scores: Scores,
    tile: int,
    has_mask: bool,
    is_wide: bool,
) -> dict[str, int | bool]:
    return {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "TILE_HEADS": min(group, tile),
        "TILE": tile,
        "D": head_dim,
        "D_PAD": padded(head_dim),
        "PAGE": page_size,
        "BLOCK": keys_per_block(head_dim, dtype),
        "IS_CAPPED": scores.is_capped,
        "IS_WINDOWED": scores.window > 0,
        "IS_WIDE": is_wide,
        "HAS_MASK": has_mask,
    }


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    lists = dict.fromkeys(("page_table", "q_starts", "seq_lens", "tiles"), "*i32")
    numbers = {"table_stride": "i32", "q_stride": "i32:16", "out_stride": "i32:16", "inner": "fp32", "outer": "fp32"}
    sizes = {  # kv heads, group, head_dim, type, window, soft cap, mask, tile
        "bf16, 8 x 4 heads of 128": (8, 4, 128, torch.bfloat16, None, None, False, LARGE),
        "bf16, 8 x 4 heads of 128, fixed": (8, 4, 128, torch.bfloat16, None, None, False, FIXED),
        "bf16, 8 x 4 heads of 128, mask": (8, 4, 128, torch.bfloat16, None, None, True, FIXED),
        "fp16, 3 x 3 heads of 64, window and soft cap": (3, 3, 64, torch.float16, 100, 30.0, False, LARGE),
        "bf16, 2 x 20 heads of 80": (2, 20, 80, torch.bfloat16, None, None, False, LARGE),
        "bf16, 4 x 2 heads of 256, soft cap": (4, 2, 256, torch.bfloat16, None, 50.0, False, FIXED),
        "fp32, 3 x 3 heads of 64": (3, 3, 64, torch.float32, None, None, False, fixed_size(64, torch.float32)),
        "fp32, 8 x 4 heads of 128": (8, 4, 128, torch.float32, None, None, False, fixed_size(128, torch.float32)),
        "fp32, 4 x 2 heads of 256": (4, 2, 256, torch.float32, None, 50.0, False, fixed_size(256, torch.float32)),
    }
    kinds = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
    cases: list[CompileCase] = []
    for name, (kv_heads, group, head_dim, dtype, window, cap, has_mask, tile) in sizes.items():
        pointers = dict.fromkeys(("q", "k_pages", "v_pages"), kinds[dtype])
        masks = {"mask": "*u8", "mask_starts": "*i64"} if has_mask else {"mask": "*i32", "mask_starts": "*i32"}
        scores = Scores.of(1.0, window, cap)
        constants = _constants(kv_heads, group, head_dim, 16, dtype, scores, tile.rows, has_mask, False)
        signature = pointers | lists | masks | {"out": kinds[dtype]} | numbers | {"window": "i32"}
        signature |= dict.fromkeys(constants, "constexpr")
        whole = f"extend_attention.extend_attention_kernel[{name}]"
        options = {"num_warps": tile.warps, "num_stages": tile.stages}
        cases.append(CompileCase(whole, extend_attention_kernel, signature, constants, options))
    return cases
