"""The keys and values of all layers, in pages. Knows nothing of who owns a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_ALIGN = 64  # bytes: a cache line, and the widest vector register


class KvPool:
    """Storage of `num_pages` pages in every layer; page 0 is the sink that padded rows write to.

    Keys of a page lie transposed, so that one head's keys of a page are contiguous along the token axis; values lie
    token by token. Memory is taken from the system when a page is first written.

    Attributes:
        k: `dtype` [layers, pages, kv_heads, head_dim, page_size].
        v: `dtype` [layers, pages, kv_heads, page_size, head_dim].

    """

    def __init__(
        self,
        num_layers: int,
        num_pages: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Make an empty pool of numbers of `dtype`, float32 or float16."""
        assert num_pages >= 2, f"a pool needs the sink page and at least one more, got {num_pages}"
        self.num_layers = num_layers
        self.num_pages = num_pages
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.page_size = page_size
        self.k = _zeros((num_layers, num_pages, num_kv_heads, head_dim, page_size), device, dtype)
        self.v = _zeros((num_layers, num_pages, num_kv_heads, page_size, head_dim), device, dtype)

    @staticmethod
    def bytes_per_page(num_layers: int, num_kv_heads: int, head_dim: int, page_size: int, item: int = 4) -> int:
        """Memory of one page over all layers, keys and values together; a number has `item` bytes."""
        return 2 * item * num_layers * num_kv_heads * head_dim * page_size

    @torch.inference_mode()  # the pool may have been made in that mode, and then is written in it only
    def copy_slots(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy page heads in all layers: for each `(src_page, dst_page, n_tokens)` the first `n_tokens` tokens.

        All sources are read before any destination is written, so a page may be source and destination at once.
        """
        if not copies:
            return
        sources = torch.tensor([src for src, _, _ in copies], device=self.k.device)
        keys, values = self.k[:, sources], self.v[:, sources]
        for i, (src, dst, n) in enumerate(copies):
            assert 0 < src < self.num_pages and 0 < dst < self.num_pages and 0 < n <= self.page_size, (
                f"copy of {n} tokens from page {src} to {dst}: pages are 1..{self.num_pages - 1} of {self.page_size} tokens"
            )
            self.k[:, dst, :, :, :n] = keys[:, i, :, :, :n]
            self.v[:, dst, :, :n] = values[:, i, :, :n]


def _zeros(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> torch.Tensor:
    """Zeros that cost no memory until written (numpy asks for cleared pages, torch writes them), aligned on the CPU."""
    if device != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    flat = np.zeros(n_bytes + _ALIGN, dtype=np.uint8)
    skip = -flat.ctypes.data % _ALIGN
    return torch.from_numpy(flat[skip : skip + n_bytes]).view(dtype).reshape(shape)
