"""FlashInfer's wrappers for layers that attend alike: which one takes a batch, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.runtime.attention.base import LayerAttention
from sglang_lite.runtime.attention.flashinfer_library import (
    CascadeWrapper,
    DecodeWrapper,
    FlashInfer,
    KvPair,
    PrefillWrapper,
)
from sglang_lite.runtime.attention.flashinfer_plan import (
    CascadePlan,
    PagedPlan,
    RaggedPlan,
    cascade_plan,
    is_decode,
    paged_plan,
    ragged_plan,
)
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool

LAYOUT = "HND"

_SMALL_GROUPS = (1, 2, 3)
"""Query heads of a kv head for which the decode kernel without tensor cores is made and is the faster one."""

_INT_WORKSPACE_BYTES = 8 << 20
"""What FlashInfer gives a wrapper for the numbers of its plan."""


Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, KvPair], torch.Tensor]
"""Attention of one layer: queries, new keys, new values, the layer's pages."""

_Wrapper = TypeVar("_Wrapper", DecodeWrapper, PrefillWrapper)


class _Numbers(TypedDict):
    """What every `plan` is told of the layer."""

    sm_scale: float
    window_left: int
    logits_soft_cap: float | None
    q_data_type: torch.dtype
    kv_data_type: torch.dtype


@dataclass(frozen=True)
class Shape:
    """What all layers have in common."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype

    @staticmethod
    def of(pool: KvPool, num_heads: int) -> Shape:
        """The pool's sizes with so many query heads."""
        return Shape(num_heads, pool.num_kv_heads, pool.head_dim, pool.page_size, pool.k.dtype)


class Step:
    """One batch with its plans, each made when a lane first asks for it, for all lanes."""

    def __init__(self, fb: ForwardBatch) -> None:
        self.fb = fb
        self.is_decode = is_decode(fb.host)

    @cached_property
    def paged(self) -> PagedPlan:
        """See `paged_plan`."""
        return paged_plan(self.fb.host, self.fb.page_size)

    @cached_property
    def cascade(self) -> CascadePlan | None:
        """See `cascade_plan`."""
        return cascade_plan(self.fb.host, self.fb.page_size)

    @cached_property
    def ragged(self) -> RaggedPlan | None:
        """See `ragged_plan`."""
        return ragged_plan(self.fb.host)


class GraphRows:
    """The device buffers that captured decode or extend steps read their rows from; shared by all lanes.

    Buckets of one factory never run at the same time, so the smaller ones use the beginnings of the largest one's.
    """

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        def empty(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        self.qo_indptr = empty(rows + 1)
        self.kv_indptr = empty(rows + 1)
        self.indices = empty(rows * width)
        self.last_page_len = empty(rows)


class Lane:
    """All layers with the same `options`. One thread at a time."""

    def __init__(self, library: FlashInfer, shape: Shape, options: LayerAttention, workspace: torch.Tensor) -> None:
        self._library = library
        self._shape = shape
        self._workspace = workspace
        self._device = workspace.device
        self._window = options.window
        self._numbers: _Numbers = {
            "sm_scale": shape.head_dim**-0.5 if options.scale is None else options.scale,
            "window_left": -1 if options.window is None else options.window - 1,
            "logits_soft_cap": options.soft_cap,
            "q_data_type": shape.dtype,
            "kv_data_type": shape.dtype,
        }
        self._tensor_cores = shape.num_heads // shape.num_kv_heads not in _SMALL_GROUPS
        self._decode = self._make_decode(None, 0)
        self._prefill = library.BatchPrefillWithPagedKVCacheWrapper(workspace, LAYOUT)
        self._ragged = library.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        self._cascades: dict[int, CascadeWrapper] = {}
        self._decode_graphs: dict[int, DecodeWrapper] = {}
        self._extend_graphs: dict[tuple[int, int], PrefillWrapper] = {}
        self._graph_workspace: torch.Tensor | None = None
        self._copied = torch.cuda.Event() if self._device.type == "cuda" else None
        self._planned: object = None
        self._run: Run | None = None

    def attend(self, step: Step, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KvPair) -> torch.Tensor:
        """The attention of one layer, whose new keys and values are in `kv` already; plans when `step` is new."""
        if self._planned is not step:
            self._wait_for_copies()
            self._run = self._plan(step)
            self._planned = step
            self._note_copies()
        assert self._run is not None, "a planned lane runs"
        return self._run(q, k, v, kv)

    def plan_graph(self, step: Step, rows: GraphRows) -> None:
        """Plan a step of the size of a graph; the wrapper of that size is made when first asked for."""
        count, num_tokens = step.fb.num_rows, step.fb.num_tokens
        self._wait_for_copies()
        if step.is_decode:
            if count not in self._decode_graphs:
                self._decode_graphs[count] = self._own(self._make_decode(rows, count))
            decode = self._decode_graphs[count]
            self._plan_decode(decode, step.paged)
            self._run = _paged(decode)
        else:
            if (num_tokens, count) not in self._extend_graphs:
                self._extend_graphs[num_tokens, count] = self._own(self._make_extend(rows, count))
            extend = self._extend_graphs[num_tokens, count]
            self._plan_prefill(extend, step.paged)
            self._run = _paged(extend)
        self._planned = step
        self._note_copies()

    def _plan(self, step: Step) -> Run:
        # A window counts from a row's last key, which a shared level does not have.
        cascade = step.cascade if self._window is None else None
        if cascade is not None:
            return _paged(self._plan_cascade(cascade))
        if step.is_decode:
            self._plan_decode(self._decode, step.paged)
            return _paged(self._decode)
        if step.ragged is not None:
            self._plan_ragged(step.ragged)
            return self._run_ragged
        self._plan_prefill(self._prefill, step.paged)
        return _paged(self._prefill)

    def _run_ragged(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KvPair) -> torch.Tensor:
        dtype = self._shape.dtype  # as if they had been stored and read
        return self._ragged.run(q, k.to(dtype).contiguous(), v.to(dtype).contiguous())

    def _plan_decode(self, wrapper: DecodeWrapper, plan: PagedPlan) -> None:
        shape = self._shape
        wrapper.plan(
            self._host(plan.kv_indptr),
            self._put(plan.indices),
            self._host(plan.last_page_len),
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.page_size,
            **self._numbers,
        )

    def _plan_prefill(self, wrapper: PrefillWrapper, plan: PagedPlan) -> None:
        shape = self._shape
        wrapper.plan(
            self._host(plan.qo_indptr),
            self._host(plan.kv_indptr),
            self._put(plan.indices),
            self._host(plan.last_page_len),
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.page_size,
            causal=True,
            **self._numbers,
        )

    def _plan_ragged(self, plan: RaggedPlan) -> None:
        shape = self._shape
        indptr = self._host(plan.indptr)
        self._ragged.plan(
            indptr, indptr, shape.num_heads, shape.num_kv_heads, shape.head_dim, causal=True, **self._numbers
        )

    def _plan_cascade(self, plan: CascadePlan) -> CascadeWrapper:
        shape, count = self._shape, len(plan.levels)
        if count not in self._cascades:
            self._cascades[count] = self._library.MultiLevelCascadeAttentionWrapper(count, self._workspace, LAYOUT)
        wrapper = self._cascades[count]
        wrapper.plan(
            [self._host(level.qo_indptr) for level in plan.levels],
            [self._host(level.kv_indptr) for level in plan.levels],
            [self._put(level.indices) for level in plan.levels],
            [self._host(level.last_page_len) for level in plan.levels],
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.page_size,
            causal=True,
            **self._numbers,
        )
        return wrapper

    def _make_extend(self, rows: GraphRows, count: int) -> PrefillWrapper:
        return self._library.BatchPrefillWithPagedKVCacheWrapper(
            self._workspace,
            LAYOUT,
            use_cuda_graph=True,
            qo_indptr_buf=rows.qo_indptr[: count + 1],
            paged_kv_indptr_buf=rows.kv_indptr[: count + 1],
            paged_kv_indices_buf=rows.indices,
            paged_kv_last_page_len_buf=rows.last_page_len[:count],
            backend="fa2",  # the one whose launches do not depend on the lengths
        )

    def _make_decode(self, rows: GraphRows | None, count: int) -> DecodeWrapper:
        return self._library.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace,
            LAYOUT,
            use_cuda_graph=rows is not None,
            use_tensor_cores=self._tensor_cores,
            paged_kv_indptr_buffer=None if rows is None else rows.kv_indptr[: count + 1],
            paged_kv_indices_buffer=None if rows is None else rows.indices,
            paged_kv_last_page_len_buffer=None if rows is None else rows.last_page_len[:count],
            backend="fa2",  # it splits long rows over the GPU, which the newer one does not
        )

    def _own(self, wrapper: _Wrapper) -> _Wrapper:
        """Let a graph's wrapper keep its plan where the lane's other graphs do: only one of them is planned at a time."""
        if self._graph_workspace is None:
            self._graph_workspace = torch.zeros(_INT_WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
        wrapper.reset_workspace_buffer(self._workspace, self._graph_workspace)
        return wrapper

    def _host(self, array: NDArray[np.int32]) -> torch.Tensor:
        """What `plan` reads on the CPU and copies itself: pinned, so that the copy waits for nothing."""
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.pin_memory()

    def _put(self, array: NDArray[np.int32]) -> torch.Tensor:
        """On the device; from the CPU `plan` would copy page numbers with a wait for all that is queued."""
        return self._host(array).to(self._device, non_blocking=True)

    def _wait_for_copies(self) -> None:
        """Until the plan before has left the pinned memory that `plan` writes again; it lies one step back."""
        if self._copied is not None:
            self._copied.synchronize()

    def _note_copies(self) -> None:
        if self._copied is not None:
            self._copied.record()


def _paged(
    wrapper: DecodeWrapper | PrefillWrapper | CascadeWrapper,
) -> Run:
    return lambda q, k, v, kv: wrapper.run(q, kv)
