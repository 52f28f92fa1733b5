"""The attention backend over the package flashinfer: plans are made here, its kernels compute. Optional."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sglang_lite.errors import UnsupportedError
from sglang_lite.kernels.reference.store_kv import store_kv as store_by_torch
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.flashinfer_lane import GraphRows, Lane, Shape, Step
from sglang_lite.runtime.attention.flashinfer_library import load_flashinfer
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool

HEAD_DIMS = (64, 128, 256)
"""Widths of heads that the kernels are made for."""

DTYPES = (torch.float16, torch.bfloat16)

WORKSPACE_BYTES = 256 << 20
"""For the partial results of rows that are split; FlashInfer recommends 128 MiB, large batches of wide heads need more."""


WORTH_EAGER_BYTES = 4 << 30
"""Keys and values of all layers that a cascade must not read again for a decode step to go without its graph: reading them takes
a GPU about as long as launching the step's kernels one by one."""


class FlashInferAttention:
    """`GraphAttention` over a pool whose keys lie token by token.

    Keys and values are stored first; then a decode step goes to the decode kernel, one whose rows begin at position 0 to
    the ragged one, any other to the paged prefill kernel, and rows next to each other that share enough of their prefix to
    the cascade. Results of a row may differ in their last bits with what else is in the batch.
    """

    def __init__(
        self,
        pool: KvPool,
        num_heads: int,
        *,
        workspace_bytes: int = WORKSPACE_BYTES,
        worth_eager_bytes: int = WORTH_EAGER_BYTES,
    ) -> None:
        """Bind to a pool.

        Args:
            pool: `token_major`.
            num_heads: query heads, a multiple of the pool's kv heads.
            workspace_bytes: device memory that all layers share.
            worth_eager_bytes: see `WORTH_EAGER_BYTES`.

        Raises:
            UnsupportedError: the package is missing or too old, or its kernels do not take these sizes.

        """
        assert pool.token_major, "flashinfer reads keys token by token: make the pool with token_major=True"
        if not self.supports(pool.head_dim, pool.k.dtype):
            raise UnsupportedError(
                f"attention_backend='flashinfer': got heads of {pool.head_dim} numbers stored as {pool.k.dtype}, it takes"
                f" {', '.join(map(str, HEAD_DIMS))} numbers in 16 bits; use attention_backend='triton'"
            )
        self._library = load_flashinfer("attention_backend='flashinfer'", "attention_backend='triton'")
        self._pool = pool
        self._shape = Shape.of(pool, num_heads)
        # FlashInfer wants it cleared before its first use
        self._workspace = torch.zeros(workspace_bytes, dtype=torch.uint8, device=pool.k.device)
        self._store = _store_on(pool.k.device)
        self._lanes: dict[LayerAttention, Lane] = {}
        self._graph_rows: dict[int, GraphRows] = {}
        self._step: Step | None = None
        self._shared: Step | None = None
        self._worth_eager = worth_eager_bytes
        self._is_graph = False

    @staticmethod
    def supports(head_dim: int, dtype: torch.dtype) -> bool:
        """Whether the kernels take heads of this width, stored in this type; the package need not be there."""
        return head_dim in HEAD_DIMS and dtype in DTYPES

    @property
    def captures_extends(self) -> bool:
        """Rows of several new tokens, all of the same number, can be captured."""
        return True

    def plan(self, fb: ForwardBatch) -> None:
        """See `AttentionBackend.plan`; the kernels' own plans follow in the first layer of each kind."""
        self._begin(fb, is_graph=False)

    def saves_by_sharing(self, fb: ForwardBatch) -> bool:
        """See `SharingAttention`: graphs hold no cascade, whose groups are others in every step."""
        self._shared = step = Step(fb)
        pool = self._pool
        item = pool.k.dtype.itemsize
        a_page = KvPool.bytes_per_page(pool.num_layers, pool.num_kv_heads, pool.head_dim, pool.page_size, item)
        return step.cascade is not None and step.cascade.saved_pages * a_page >= self._worth_eager

    def plan_capture(self, fb: ForwardBatch) -> None:
        """See `GraphAttention.plan_capture`. At least one step must have run, so that the kinds of layers are known."""
        assert self._lanes, "capturing: run one step first, so that every kind of layer has been met"
        row_tokens, width = fb.num_tokens // fb.num_rows, fb.page_table.shape[1]
        if row_tokens not in self._graph_rows:
            self._graph_rows[row_tokens] = GraphRows(fb.num_rows, width, self._pool.k.device)
        room = self._graph_rows[row_tokens]
        assert fb.num_rows <= len(room.last_page_len) and fb.num_rows * width <= len(room.indices), (
            f"capturing {fb.num_rows} rows of {width} pages after a graph of {len(room.last_page_len)} rows: the largest"
            " comes first"
        )
        self.plan_replay(fb)

    def plan_replay(self, fb: ForwardBatch) -> None:
        """See `GraphAttention.plan_replay`."""
        self._begin(fb, is_graph=True)
        assert self._step is not None, "set by _begin"
        room = self._graph_rows[fb.num_tokens // fb.num_rows]
        for lane in self._lanes.values():
            lane.plan_graph(self._step, room)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`."""
        step, pool = self._step, self._pool
        assert step is not None, "forward needs a plan: call plan(forward_batch) first"
        self._store(pool, k, v, layer, step.fb.out_slots)
        queries = q.to(self._shape.dtype).contiguous()
        return self._lane(options).attend(step, queries, k, v, (pool.k[layer], pool.v[layer])).to(q.dtype)

    def _begin(self, fb: ForwardBatch, *, is_graph: bool) -> None:
        assert fb.page_size == self._pool.page_size, (
            f"batch pages of {fb.page_size}, pool pages of {self._pool.page_size}"
        )
        known = self._shared
        self._shared = None
        self._step = known if known is not None and known.fb is fb else Step(fb)
        self._is_graph = is_graph

    def _lane(self, options: LayerAttention) -> Lane:
        lane = self._lanes.get(options)
        if lane is None:
            assert not self._is_graph, f"a captured step meets layers that no step before had: {options}"
            lane = self._lanes[options] = Lane(self._library, self._shape, options, self._workspace)
        return lane


Store = Callable[[KvPool, torch.Tensor, torch.Tensor, int, torch.Tensor], None]


def _store_on(device: torch.device) -> Store:
    if device.type != "cuda":
        return _store_by_torch
    from sglang_lite.kernels.triton.store_kv import store_kv  # triton: only where there is a GPU

    def store(pool: KvPool, k: torch.Tensor, v: torch.Tensor, layer: int, slots: torch.Tensor) -> None:
        store_kv(k, v, pool.k[layer], pool.v[layer], slots)

    return store


def _store_by_torch(pool: KvPool, k: torch.Tensor, v: torch.Tensor, layer: int, slots: torch.Tensor) -> None:
    store_by_torch(k, v, pool.transposed_keys(layer), pool.v[layer], slots)
