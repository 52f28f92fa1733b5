"""The keys and values of all layers, in pages. Knows nothing of who owns a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_SCALE_BYTES = 4
"""Of a token and head whose numbers are int8."""

_ALIGN = 64  # bytes: a cache line, and the widest vector register


class KvPool:
    """Storage of `num_pages` pages in every layer; page 0 is the sink that padded rows write to.

    Values of a page lie token by token. Keys lie so too where the pool is `token_major` (what GPUs read), else
    transposed: one head's keys of a page contiguous along the token axis (what CPUs read). In main memory a page is
    taken from the system when it is first written.

    Attributes:
        k: `dtype` [layers, pages, kv_heads, head_dim, page_size], or [layers, pages, kv_heads, page_size, head_dim].
        v: `dtype` [layers, pages, kv_heads, page_size, head_dim].
        k_scales: float32 [layers, pages, kv_heads, page_size], what one of a token's int8 keys is worth; [0] for other types.
        v_scales: as `k_scales`, of values.
        token_major: whether keys lie token by token.

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
        *,
        token_major: bool = False,
    ) -> None:
        """Make an empty pool of numbers of `dtype`: float32, float16, bfloat16, or int8 with a scale for each token and head."""
        assert num_pages >= 2, f"a pool needs the sink page and at least one more, got {num_pages}"
        self.num_layers = num_layers
        self.num_pages = num_pages
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.page_size = page_size
        self.token_major = token_major
        by_token = (num_layers, num_pages, num_kv_heads, page_size, head_dim)
        self.k = _zeros(by_token if token_major else (*by_token[:3], head_dim, page_size), device, dtype)
        self.v = _zeros(by_token, device, dtype)
        scaled = by_token[:4] if dtype == torch.int8 else (0,)
        self.k_scales = _zeros(scaled, device, torch.float32)
        self.v_scales = _zeros(scaled, device, torch.float32)

    def transposed_keys(self, layer: int) -> torch.Tensor:
        """The keys of a layer as [pages, kv_heads, head_dim, page_size], a view in either layout."""
        return self.k[layer].transpose(-1, -2) if self.token_major else self.k[layer]

    @staticmethod
    def bytes_per_page(num_layers: int, num_kv_heads: int, head_dim: int, page_size: int, item: int = 4) -> int:
        """Memory of one page over all layers, keys, values and their scales together; a number has `item` bytes."""
        head = item * head_dim + (_SCALE_BYTES if item == 1 else 0)
        return 2 * num_layers * num_kv_heads * head * page_size

    @torch.inference_mode()  # the pool may have been made in that mode, and then is written in it only
    def copy_slots(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy page heads in all layers: for each `(src_page, dst_page, n_tokens)` the first `n_tokens` tokens.

        All sources are read before any destination is written, so a page may be source and destination at once.
        """
        for src, dst, n in copies:
            assert 0 < src < self.num_pages and 0 < dst < self.num_pages and 0 < n <= self.page_size, (
                f"copy of {n} tokens from page {src} to {dst}: pages are 1..{self.num_pages - 1} of {self.page_size} tokens"
            )
        by_token = self.k if self.token_major else self.k.transpose(-1, -2)
        # Pages by number, not by a tensor of numbers: that would be a transfer, and the host would wait for the device.
        parts = [by_token, self.v, *(scales for scales in (self.k_scales, self.v_scales) if len(scales))]
        heads = [[part[:, src, :, :n].clone() for part in parts] for src, _, n in copies]
        for (_, dst, n), head in zip(copies, heads, strict=True):
            for part, copied in zip(parts, head, strict=True):
                part[:, dst, :, :n] = copied


def _zeros(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> torch.Tensor:
    """Zeros that cost no memory until written (numpy asks for cleared pages, torch writes them), aligned on the CPU."""
    if device != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    flat = np.zeros(n_bytes + _ALIGN, dtype=np.uint8)
    skip = -flat.ctypes.data % _ALIGN
    return torch.from_numpy(flat[skip : skip + n_bytes]).view(dtype).reshape(shape)
