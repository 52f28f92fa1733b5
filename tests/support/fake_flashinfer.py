"""The module flashinfer without a GPU: wrappers with the signatures of 0.6.1 that compute from what `plan` and `run` are given.

They keep the rules that the real ones have: with graphs the number of rows is fixed, rows are read from the buffers of the
constructor and from nowhere else, and the numbers of a plan lie in the int workspace, where another plan may overwrite them.
"""

from __future__ import annotations

import sys
from itertools import count
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

_plans = count(1)


def attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    causal: bool,
    sm_scale: float,
    window_left: int,
    logits_soft_cap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One row: q [n, heads, D] over keys and values [m, kv_heads, D]; the output and the log of the sum of exponentials."""
    n, heads, _ = q.shape
    m = len(keys)
    group = heads // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("nhd,mhd->hnm", q.double(), k) * sm_scale
    if logits_soft_cap:
        scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
    place = torch.arange(m - n, m)[:, None]
    key = torch.arange(m)
    hidden = key > place if causal else torch.zeros(n, m, dtype=torch.bool)
    if window_left >= 0:
        hidden = hidden | (key < place - window_left)
    scores = scores.masked_fill(hidden, float("-inf"))
    lse = scores.logsumexp(dim=-1)  # [heads, n], -inf where there is nothing
    weights = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None])
    return torch.einsum("hnm,mhd->nhd", weights, v), lse.T


class _Wrapper:
    """What all wrappers share: working memory, and the numbers of the last plan."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str) -> None:
        assert kv_layout in ("NHD", "HND"), kv_layout
        assert float_workspace_buffer.dtype == torch.uint8
        assert not float_workspace_buffer.any(), "the workspace is cleared before its first use"
        self.kv_layout = kv_layout
        self._int_workspace = torch.zeros(8, dtype=torch.uint8)
        self._mark: torch.Tensor | None = None
        self._numbers: dict[str, Any] = {}
        self.num_plans = 0
        self.num_runs = 0

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        assert int_workspace_buffer.dtype == torch.uint8
        self._int_workspace = int_workspace_buffer

    def _note_plan(self, q_data_type: Any, kv_data_type: Any, **numbers: Any) -> None:
        assert numbers["logits_soft_cap"] is None or numbers["logits_soft_cap"] > 0
        assert numbers["pos_encoding_mode"] == "NONE", "positions are in the queries and keys already"
        del numbers["pos_encoding_mode"]
        self._numbers = numbers
        self._types = (q_data_type, kv_data_type)
        self._mark = torch.tensor(list(next(_plans).to_bytes(8, "little")), dtype=torch.uint8)
        self._int_workspace[:8].copy_(self._mark)
        self.num_plans += 1

    def _note_run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        assert self._mark is not None, "run without a plan"
        assert torch.equal(self._int_workspace[:8], self._mark), "another plan has overwritten this one's numbers"
        assert (q.dtype, k.dtype, v.dtype) == (self._types[0], self._types[1], self._types[1])
        assert q.is_contiguous()
        self.num_runs += 1


class _Paged(_Wrapper):
    """Rows over pages. `_rows()` gives qo_indptr, kv_indptr, indices, last_page_len from where a kernel reads them."""

    def __init__(
        self, float_workspace_buffer: torch.Tensor, kv_layout: str, use_cuda_graph: bool, buffers: list[Any]
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout)
        self.use_cuda_graph = use_cuda_graph
        self._buffers = buffers
        if use_cuda_graph:
            assert all(isinstance(buffer, torch.Tensor) and buffer.dtype == torch.int32 for buffer in buffers)
            self._fixed_rows = len(buffers[-1])
            assert len(buffers[1]) == self._fixed_rows + 1, "indptr buffers have one entry more than rows"
            assert len(buffers[0]) == self._fixed_rows + 1
        self._sizes: tuple[int, ...] = ()
        self._most_queries: int | None = None

    def _take(self, rows: list[torch.Tensor], sizes: tuple[int, ...]) -> None:
        for tensor in rows:
            assert tensor.dtype == torch.int32, tensor.dtype
        if self.use_cuda_graph:
            if len(rows[-1]) != self._fixed_rows:
                raise ValueError("The batch size should be fixed in cudagraph mode")
            if len(rows[2]) > len(self._buffers[2]):
                raise ValueError("The size of indices should be less than or equal to the allocated buffer")
            self._most_queries = self._most_queries or int(rows[0][-1])
            if int(rows[0][-1]) > self._most_queries:
                raise ValueError("The total number of rows cannot exceed the number of rows set during initialization")
            for buffer, tensor in zip(self._buffers, rows, strict=True):
                buffer[: len(tensor)].copy_(tensor)
        else:
            self._buffers = [tensor.clone() for tensor in rows]
        self._sizes = sizes

    def compute(self, q: torch.Tensor, kv: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-sum-exp, float64."""
        heads, kv_heads, head_dim, page_size = self._sizes
        self._note_run(q, *kv)
        k_pages, v_pages = kv
        assert self.kv_layout == "HND"
        assert k_pages.shape[1:] == (kv_heads, page_size, head_dim) == v_pages.shape[1:]
        qo_indptr, kv_indptr, indices, last_page_len = (buffer.tolist() for buffer in self._buffers)
        assert q.shape == (qo_indptr[-1], heads, head_dim), f"{q.shape} queries, planned for {qo_indptr[-1]}"
        out = torch.zeros(q.shape, dtype=torch.float64)
        lse = torch.full((len(q), heads), float("-inf"), dtype=torch.float64)
        for row, last in enumerate(last_page_len):
            pages = indices[kv_indptr[row] : kv_indptr[row + 1]]
            if not pages:
                assert last == 0
                continue
            assert 1 <= last <= page_size
            length = (len(pages) - 1) * page_size + last
            keys, values = (part[pages].transpose(1, 2).flatten(0, 1)[:length] for part in kv)
            lo, hi = qo_indptr[row], qo_indptr[row + 1]
            out[lo:hi], lse[lo:hi] = attend(q[lo:hi], keys, values, **self._numbers)
        return out, lse

    def run(self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        out = torch.empty_like(q)
        with _disable_current_modes():  # a kernel: what it does inside is no operation of torch
            out.copy_(self.compute(q, paged_kv_cache)[0])
        return out


class BatchDecodeWithPagedKVCacheWrapper(_Paged):
    made: list[BatchDecodeWithPagedKVCacheWrapper]

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
    ) -> None:
        assert backend in ("auto", "fa2", "fa3", "trtllm-gen")
        buffers = [paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer]
        one_each = None
        if use_cuda_graph:
            assert paged_kv_last_page_len_buffer is not None
            one_each = torch.arange(len(paged_kv_last_page_len_buffer) + 1, dtype=torch.int32)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, [one_each, *buffers])
        self.use_tensor_cores = use_tensor_cores
        self.made.append(self)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        data_type: Any = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        block_tables: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        group = num_qo_heads // num_kv_heads
        assert self.use_tensor_cores or group in (1, 2, 3, 4, 8), f"no kernel for groups of {group}"
        qo_indptr = torch.arange(len(indptr), dtype=torch.int32)
        self._take([qo_indptr, indptr, indices, last_page_len], (num_qo_heads, num_kv_heads, head_dim, page_size))
        self._note_plan(
            q_data_type,
            kv_data_type or q_data_type,
            causal=False,
            sm_scale=sm_scale or head_dim**-0.5,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            pos_encoding_mode=pos_encoding_mode,
        )


class BatchPrefillWithPagedKVCacheWrapper(_Paged):
    made: list[BatchPrefillWithPagedKVCacheWrapper]

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        assert backend in ("auto", "fa2", "fa3", "cudnn", "trtllm-gen")
        buffers = [qo_indptr_buf, paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf]
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, buffers)
        self.made.append(self)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        **further: Any,
    ) -> None:
        assert not further, f"used nowhere here: {sorted(further)}"
        rows = [qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len]
        self._take(rows, (num_qo_heads, num_kv_heads, head_dim_qk, page_size))
        self._note_plan(
            q_data_type,
            kv_data_type or q_data_type,
            causal=causal,
            sm_scale=sm_scale or head_dim_qk**-0.5,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            pos_encoding_mode=pos_encoding_mode,
        )


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    made: list[BatchPrefillWithRaggedKVCacheWrapper]

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD") -> None:
        super().__init__(float_workspace_buffer, kv_layout)
        self.made.append(self)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
    ) -> None:
        self._indptrs = (qo_indptr.tolist(), kv_indptr.tolist())
        self._heads = (num_qo_heads, num_kv_heads, head_dim_qk)
        self._note_plan(
            q_data_type,
            kv_data_type or q_data_type,
            causal=causal,
            sm_scale=sm_scale or head_dim_qk**-0.5,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            pos_encoding_mode=pos_encoding_mode,
        )

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        self._note_run(q, k, v)
        heads, kv_heads, head_dim = self._heads
        assert q.shape[1:] == (heads, head_dim)
        assert k.shape[1:] == (kv_heads, head_dim) == v.shape[1:]
        out = torch.empty_like(q)
        queries, keys = self._indptrs
        for row in range(len(queries) - 1):
            lo, hi = queries[row : row + 2]
            a, b = keys[row : row + 2]
            out[lo:hi] = attend(q[lo:hi], k[a:b], v[a:b], **self._numbers)[0]
        return out


class MultiLevelCascadeAttentionWrapper:
    made: list[MultiLevelCascadeAttentionWrapper]

    def __init__(self, num_levels: int, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD") -> None:
        self.levels = [
            BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout) for _ in range(num_levels)
        ]
        self.num_runs = 0
        self.made.append(self)

    def plan(
        self,
        qo_indptr_arr: list[torch.Tensor],
        paged_kv_indptr_arr: list[torch.Tensor],
        paged_kv_indices_arr: list[torch.Tensor],
        paged_kv_last_page_len: list[torch.Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
    ) -> None:
        parts = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        for i, (wrapper, *rows) in enumerate(zip(self.levels, *parts, strict=True)):
            wrapper.plan(
                *rows,
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=causal and i == len(self.levels) - 1,
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    def run(self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        self.num_runs += 1
        outs, lses = zip(*(wrapper.compute(q, paged_kv_cache) for wrapper in self.levels), strict=True)
        weights = torch.stack(lses).softmax(dim=0)
        return (torch.stack(outs) * weights[..., None]).sum(0).to(q.dtype)


def top_k_renorm_probs(probs: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """All that are at least as likely as the `top_k`-th stay."""
    assert probs.dtype == torch.float32
    least = probs.sort(dim=-1, descending=True).values.gather(1, top_k.long()[:, None].clamp(max=probs.shape[1]) - 1)
    kept = probs.masked_fill(probs < least, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_renorm_probs(probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The shortest beginning of the order whose mass is `top_p`, and all that is as likely as its last."""
    assert probs.dtype == top_p.dtype == torch.float32
    ordered = probs.double().sort(dim=-1, descending=True).values
    before = ordered.cumsum(-1) - ordered
    last = (before < top_p.double()[:, None]).sum(-1, keepdim=True) - 1
    least = ordered.gather(1, last.clamp(min=0)).float()
    kept = probs.masked_fill(probs < least, 0.0)
    return kept / kept.sum(-1, keepdim=True)


class Fake:
    """The installed module, and the wrappers that were made of each kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = ModuleType("flashinfer")
        self.decode: list[BatchDecodeWithPagedKVCacheWrapper] = []
        self.prefill: list[BatchPrefillWithPagedKVCacheWrapper] = []
        self.ragged: list[BatchPrefillWithRaggedKVCacheWrapper] = []
        self.cascade: list[MultiLevelCascadeAttentionWrapper] = []
        for made, kind in (
            (self.decode, BatchDecodeWithPagedKVCacheWrapper),
            (self.prefill, BatchPrefillWithPagedKVCacheWrapper),
            (self.ragged, BatchPrefillWithRaggedKVCacheWrapper),
            (self.cascade, MultiLevelCascadeAttentionWrapper),
        ):
            monkeypatch.setattr(kind, "made", made, raising=False)
            setattr(self.module, kind.__name__, kind)
        for function in (top_k_renorm_probs, top_p_renorm_probs):
            setattr(self.module, function.__name__, function)
        monkeypatch.setitem(sys.modules, "flashinfer", self.module)

    def runs(self) -> dict[str, int]:
        """How often each kind computed; a cascade's levels are not counted apart."""
        kinds = {"decode": self.decode, "prefill": self.prefill, "ragged": self.ragged, "cascade": self.cascade}
        counts = {name: sum(wrapper.num_runs for wrapper in made) for name, made in kinds.items()}
        counts["prefill"] -= sum(level.num_runs for wrapper in self.cascade for level in wrapper.levels)
        return {name: number for name, number in counts.items() if number}
