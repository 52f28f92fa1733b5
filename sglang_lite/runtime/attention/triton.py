"""The attention backend of our Triton kernels: what each row is computed with, planned on the host once a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sglang_lite.kernels.triton.decode_attention import split_attention
from sglang_lite.kernels.triton.extend_attention import TileSize, attend_tiles, fixed_size, plan_tiles, tile_size
from sglang_lite.kernels.triton.split_plan import TILE, SplitPlan, heads_per_tile, most_splits, plan_split
from sglang_lite.kernels.triton.split_work import SplitWork, to_device
from sglang_lite.kernels.triton.store_kv import store_kv
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool

_SPLIT_TILES = 4
"""Rows whose new tokens fill up to so many tiles are split over their keys: one program for each would take too long."""

_SPLIT_TOKENS = 16
"""And have no more new tokens than this: each has partial results of its own."""

_MOST_PARTIAL_FLOATS = 64 * 2**20
"""Partial results of one round of launches of an eager step; more queries take several rounds."""


@dataclass(frozen=True)
class _Step:
    """What the layers of a step launch."""

    batch: ForwardBatch
    rounds: tuple[SplitWork, ...]
    tiles: torch.Tensor | None
    size: TileSize


class TritonAttention:
    """`GraphAttention` over a pool whose keys lie token by token, with launches that depend on the host's numbers alone.

    Rows of a few new tokens (decode, drafts) are split over their keys, and those which share pages read them once; rows
    of more go through the extend kernel. A row's way depends on the row alone.
    """

    def __init__(self, pool: KvPool, num_heads: int, *, deterministic: bool = False) -> None:
        """Bind to a pool.

        Args:
            pool: token-major; float32, float16 or bfloat16, on the GPU (under Triton's interpreter in main memory).
            num_heads: query heads; a multiple of the pool's kv heads.
            deterministic: a row's result is equal to the bit whatever else is in the batch. Else the size of the tiles
                of prefills follows the batch, which is faster.

        """
        assert pool.token_major, "Triton's kernels read keys token by token: make the pool with token_major=True"
        assert num_heads % pool.num_kv_heads == 0, f"{num_heads} query heads on {pool.num_kv_heads} kv heads"
        self._pool = pool
        self._num_heads = num_heads
        self._group = num_heads // pool.num_kv_heads
        self._deterministic = deterministic
        self._fixed_size = fixed_size(pool.head_dim, pool.k.dtype)
        self._partials = torch.empty(0, dtype=torch.float32, device=pool.k.device)
        self._captured: dict[tuple[int, int], SplitWork] = {}
        self._captured_partials: torch.Tensor | None = None
        self._step: _Step | None = None

    def plan(self, fb: ForwardBatch) -> None:
        """See `AttentionBackend.plan`."""
        self._check(fb)
        host = fb.host
        new_lens = np.diff(host.q_starts)
        tiles = -(-new_lens * heads_per_tile(self._group) // TILE)
        is_split = (new_lens == 1) | ((tiles <= _SPLIT_TILES) & (new_lens <= _SPLIT_TOKENS))
        rounds = tuple(self._work(plan) for plan in self._split_plans(fb, is_split))
        long_lens = np.where(is_split, 0, new_lens)
        size = self._fixed_size
        if not self._deterministic:
            most_new = int(long_lens.max(initial=0))
            size = tile_size(most_new, self._group, self._pool.head_dim, self._pool.k.dtype)
        tiled = None
        if long_lens.any():
            tiled = to_device(plan_tiles(long_lens, host.seq_lens, self._group, size), self._pool.k.device)
        self._step = _Step(fb, rounds, tiled, size)

    def plan_capture(self, fb: ForwardBatch) -> None:
        """See `GraphAttention.plan_capture`. To be called before the recording begins: it allocates and copies."""
        self._check(fb)
        rows, width = fb.page_table.shape
        assert fb.num_tokens == rows, f"{fb.num_tokens} tokens in {rows} rows: only rows of one new token are recorded"
        splits = most_splits(width * fb.page_size)
        heads, dim, device = self._num_heads, self._pool.head_dim, self._pool.k.device
        floats = SplitWork.partial_floats(rows, splits, heads, dim)
        if self._captured_partials is None or len(self._captured_partials) < floats:
            # What was recorded before goes on with the smaller buffer that it holds.
            self._captured_partials = torch.empty(floats, dtype=torch.float32, device=device)
        work = SplitWork(rows, rows * splits, splits, heads, dim, device, self._captured_partials)
        work.fill(self._decode_plan(fb))
        self._captured[rows, width] = work
        self._step = _Step(fb, (work,), None, self._fixed_size)

    def plan_replay(self, fb: ForwardBatch) -> None:
        """See `GraphAttention.plan_replay`."""
        rows, width = fb.page_table.shape
        work = self._captured.get((rows, width))
        assert work is not None, f"nothing was recorded for {rows} rows and page tables of {width} pages"
        work.fill(self._decode_plan(fb))
        self._step = _Step(fb, (work,), None, self._fixed_size)  # for graphs that call `forward` again

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`; `q` is float32 or of the pool's type."""
        step = self._step
        assert step is not None, "forward needs a plan: call plan(forward_batch) first"
        assert q.dtype in (torch.float32, self._pool.k.dtype), f"q of {q.dtype}, a pool of {self._pool.k.dtype}"
        fb = step.batch
        pages = (self._pool.k[layer], self._pool.v[layer])
        q = _by_heads(q)
        store_kv(_by_heads(k), _by_heads(v), *pages, fb.out_slots)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        scale = self._pool.head_dim**-0.5 if options.scale is None else options.scale
        numbers = (scale, options.window, options.soft_cap)
        for work in step.rounds:
            split_attention(q, *pages, fb.page_table, work, out, *numbers)
        if step.tiles is not None:
            rows = (fb.page_table, fb.q_starts, fb.seq_lens)
            attend_tiles(q, *pages, *rows, step.tiles, step.size, out, *numbers)
        return out

    def _check(self, fb: ForwardBatch) -> None:
        assert fb.page_size == self._pool.page_size, (
            f"batch pages of {fb.page_size}, pool pages of {self._pool.page_size}"
        )

    def _split_plans(self, fb: ForwardBatch, is_split: np.ndarray) -> list[SplitPlan]:
        """Plans of all tokens of the rows that are split, in rounds whose partial results fit."""
        host = fb.host
        new_lens = np.where(is_split, np.diff(host.q_starts), 0)
        tokens = np.flatnonzero(np.repeat(is_split, np.diff(host.q_starts))).astype(np.int32)
        rows = np.repeat(np.arange(fb.num_rows, dtype=np.int32), new_lens)
        limits = (host.positions[tokens] + 1).astype(np.int32)
        splits = most_splits(int(limits.max(initial=1)))
        per_query = SplitWork.partial_floats(1, splits, self._num_heads, self._pool.head_dim)
        most = max(1, _MOST_PARTIAL_FLOATS // per_query)
        parts = [slice(start, start + most) for start in range(0, len(tokens), most)]
        table = host.page_table
        return [plan_split(tokens[p], rows[p], limits[p], table, fb.page_size, self._group) for p in parts]

    def _decode_plan(self, fb: ForwardBatch) -> SplitPlan:
        rows = np.arange(fb.num_rows, dtype=np.int32)
        return plan_split(rows, rows, fb.host.seq_lens, fb.host.page_table, fb.page_size, self._group)

    def _work(self, plan: SplitPlan) -> SplitWork:
        """The plan on the device; rounds and steps share one buffer of partial results, one after another."""
        sizes = (self._num_heads, self._pool.head_dim)
        floats = SplitWork.partial_floats(len(plan.tokens), plan.splits, *sizes)
        if len(self._partials) < floats:
            self._partials = torch.empty(floats, dtype=torch.float32, device=self._pool.k.device)
        shape = (len(plan.tokens), len(plan.items), plan.splits)
        work = SplitWork(*shape, *sizes, self._pool.k.device, self._partials)
        work.fill(plan)
        return work


def _by_heads(x: torch.Tensor) -> torch.Tensor:
    """`x` with its heads one after another; a slice of a merged projection is so already."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()
