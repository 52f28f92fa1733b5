"""The part of the package flashinfer that is used here, as types, and its import; written after version 0.6.1."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, cast

import torch

from sglang_lite.errors import UnsupportedError

KvPair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, each [pages, kv_heads, page_size, head_dim]: the layout that is called HND."""


class DecodeWrapper(Protocol):
    """`BatchDecodeWithPagedKVCacheWrapper`: one query a row."""

    def plan(  # noqa: PLR0913 - as there
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:
        """Prepare for these rows."""
        ...

    def run(self, q: torch.Tensor, paged_kv_cache: KvPair) -> torch.Tensor:
        """Attend."""
        ...

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        """Use other working memory."""
        ...


class PrefillWrapper(Protocol):
    """`BatchPrefillWithPagedKVCacheWrapper`: any number of queries a row."""

    def plan(  # noqa: PLR0913 - as there
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Prepare for these rows."""
        ...

    def run(self, q: torch.Tensor, paged_kv_cache: KvPair) -> torch.Tensor:
        """Attend."""
        ...

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        """Use other working memory."""
        ...


class RaggedWrapper(Protocol):
    """`BatchPrefillWithRaggedKVCacheWrapper`: keys and values packed as the queries are."""

    def plan(  # noqa: PLR0913 - as there
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        *,
        causal: bool,
        window_left: int,
        logits_soft_cap: float | None,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Prepare for these rows."""
        ...

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend."""
        ...


class CascadeWrapper(Protocol):
    """`MultiLevelCascadeAttentionWrapper`: a list an argument, an element a level."""

    def plan(  # noqa: PLR0913 - as there
        self,
        qo_indptr_arr: list[torch.Tensor],
        paged_kv_indptr_arr: list[torch.Tensor],
        paged_kv_indices_arr: list[torch.Tensor],
        paged_kv_last_page_len: list[torch.Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Prepare for these rows; `causal` counts for the last level."""
        ...

    def run(self, q: torch.Tensor, paged_kv_cache: KvPair) -> torch.Tensor:
        """Attend."""
        ...


class FlashInfer(Protocol):
    """The module; names as there."""

    def BatchDecodeWithPagedKVCacheWrapper(  # noqa: N802
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> DecodeWrapper:
        """Make one; with `use_cuda_graph` the buffers' sizes fix the number of rows."""
        ...

    def BatchPrefillWithPagedKVCacheWrapper(  # noqa: N802
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> PrefillWrapper:
        """Make one; with `use_cuda_graph` the buffers' sizes fix the number of rows."""
        ...

    def BatchPrefillWithRaggedKVCacheWrapper(  # noqa: N802
        self, float_workspace_buffer: torch.Tensor, kv_layout: str
    ) -> RaggedWrapper:
        """Make one."""
        ...

    def MultiLevelCascadeAttentionWrapper(  # noqa: N802
        self, num_levels: int, float_workspace_buffer: torch.Tensor, kv_layout: str
    ) -> CascadeWrapper:
        """Make one for so many levels."""
        ...

    def top_k_renorm_probs(self, probs: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
        """Keep the `top_k` most likely of each row of float32 [n, V], as a distribution."""
        ...

    def top_p_renorm_probs(self, probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
        """Keep the most likely of each row whose mass is `top_p`, as a distribution."""
        ...


ROOT_NAMES: Sequence[str] = (
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "top_k_renorm_probs",
    "top_p_renorm_probs",
)
"""What is looked up in the module; all of it is checked at the start."""


def load_flashinfer(setting: str, instead: str) -> FlashInfer:
    """Import the package. Heavy: it brings compilers and more along, so this is called only where it is used.

    Args:
        setting: what asked for it, for messages.
        instead: the setting that does without.

    Raises:
        UnsupportedError: it is not installed, cannot be imported, or lacks what is used here.

    """
    remedy = f"pip install 'sglang-lite[cuda]', or use {instead}"
    try:
        module = importlib.import_module("flashinfer")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{setting}: no module {error.name!r}; the package flashinfer-python is optional: {remedy}"
        ) from error
    except (ImportError, OSError) as error:
        raise UnsupportedError(f"{setting}: the package does not load ({error}): {remedy}") from error
    if missing := [name for name in ROOT_NAMES if name not in vars(module)]:
        raise UnsupportedError(
            f"{setting}: the installed version has no {', '.join(missing)}; 0.6.1 or a newer 0.6 is needed: {remedy}"
        )
    return cast(FlashInfer, module)
