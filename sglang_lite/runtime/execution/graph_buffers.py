"""The device tensors that captured graphs read: allocated once, filled before each replay. Knows no graph and no model."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch, HostBatch

SINK_PAGE = 0
"""The page that padding rows read and write; no live row ever reads it."""


class GraphBuffers:
    """Room for batches of up to `max_rows` rows, each with exactly `row_tokens` new tokens.

    A batch of fewer rows than its bucket is filled up with rows on the sink page: token 0 at positions 0, 1, ..., every
    slot and every page 0. Their values are never looked at, and no live row reads what they write.

    Attributes:
        max_rows: the largest bucket.
        row_tokens: new tokens of each row; 1 for decode.
        width: entries of a row's page table, enough for the longest sequence.

    """

    def __init__(self, max_rows: int, width: int, page_size: int, device: str, row_tokens: int = 1) -> None:
        assert max_rows >= 1 and width >= 1 and row_tokens >= 1, f"{max_rows} rows, {width} pages, {row_tokens} tokens"
        self.max_rows = max_rows
        self.row_tokens = row_tokens
        self.width = width
        self._page_size = page_size
        tokens = max_rows * row_tokens

        def zeros(size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self._input_ids = zeros(tokens, torch.int64)
        self._out_slots = zeros(tokens, torch.int64)
        self._positions = torch.arange(row_tokens, dtype=torch.int64, device=device).repeat(max_rows)
        self._q_starts = torch.arange(0, tokens + 1, row_tokens, dtype=torch.int32, device=device)
        self._seq_lens = torch.full((max_rows,), row_tokens, dtype=torch.int32, device=device)
        self._prefix_lens = zeros(max_rows, torch.int32)
        self._page_table = zeros(max_rows * width, torch.int32).view(max_rows, width)
        self._used_rows = 0
        self._used_width = 0

    @property
    def num_bytes(self) -> int:
        """Device memory of all buffers."""
        tensors = (
            self._input_ids,
            self._out_slots,
            self._positions,
            self._q_starts,
            self._seq_lens,
            self._prefix_lens,
            self._page_table,
        )
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def padding(self, bucket: int) -> ForwardBatch:
        """A batch of `bucket` padding rows; what is captured."""
        self._clear(0, 0)
        return self._batch(bucket, self._padded_host(None, bucket))

    def fill(self, fb: ForwardBatch, bucket: int) -> ForwardBatch:
        """Copy `fb` in, device to device and in stream order; the rest of the `bucket` rows becomes padding.

        The returned batch is made of views of the same memory at every call. Its `host` is the padded batch on the CPU.

        Args:
            fb: at most `bucket` rows of exactly `row_tokens` tokens each, at most `width` pages wide.
            bucket: rows of the graph, at most `max_rows`.

        """
        rows, tokens, wide = fb.num_rows, fb.num_tokens, fb.page_table.shape[1]
        assert rows <= bucket <= self.max_rows and wide <= self.width and tokens == rows * self.row_tokens, (
            f"a batch of {rows} rows, {tokens} tokens and {wide} pages does not fit a graph of {bucket} rows of"
            f" {self.row_tokens} tokens and {self.width} pages (buffers hold {self.max_rows} rows)"
        )
        self._clear(rows, wide)
        _copy(
            [self._input_ids[:tokens], self._positions[:tokens], self._out_slots[:tokens]],
            [fb.input_ids, fb.positions, fb.out_slots],
        )
        _copy([self._seq_lens[:rows], self._prefix_lens[:rows]], [fb.seq_lens, fb.prefix_lens])
        self._page_table[:rows, :wide].copy_(fb.page_table)
        self._used_rows, self._used_width = rows, wide
        return self._batch(bucket, self._padded_host(fb, bucket))

    def _clear(self, rows: int, wide: int) -> None:
        """Make padding of what the batch before left behind `rows` rows, and sink pages of what it left behind column `wide`."""
        if wide < self._used_width:
            self._page_table[: self._used_rows, wide : self._used_width].zero_()
        if rows < self._used_rows:
            tokens, used = rows * self.row_tokens, self._used_rows * self.row_tokens
            self._input_ids[tokens:used].zero_()
            self._out_slots[tokens:used].zero_()
            count = self._used_rows - rows
            self._positions[tokens:used].view(count, -1).copy_(self._row_positions().expand(count, -1))
            self._seq_lens[rows : self._used_rows].fill_(self.row_tokens)
            self._prefix_lens[rows : self._used_rows].zero_()
            self._page_table[rows : self._used_rows, :wide].zero_()
        self._used_rows, self._used_width = rows, wide

    def _row_positions(self) -> torch.Tensor:
        return torch.arange(self.row_tokens, dtype=torch.int64, device=self._positions.device)

    def _batch(self, bucket: int, host: HostBatch) -> ForwardBatch:
        tokens = bucket * self.row_tokens
        return ForwardBatch(
            input_ids=self._input_ids[:tokens],
            positions=self._positions[:tokens],
            q_starts=self._q_starts[: bucket + 1],
            seq_lens=self._seq_lens[:bucket],
            prefix_lens=self._prefix_lens[:bucket],
            page_table=self._page_table[:bucket],
            out_slots=self._out_slots[:tokens],
            page_size=self._page_size,
            host=host,
        )

    def _padded_host(self, fb: ForwardBatch | None, bucket: int) -> HostBatch:
        """The bucket on the CPU; its page table is only as wide as the batch's own."""
        n = self.row_tokens
        padding = HostBatch(
            positions=np.tile(np.arange(n, dtype=np.int64), bucket),
            q_starts=np.arange(0, bucket * n + 1, n, dtype=np.int32),
            seq_lens=np.full(bucket, n, dtype=np.int32),
            prefix_lens=np.zeros(bucket, dtype=np.int32),
            page_table=np.full((bucket, -(-n // self._page_size)), SINK_PAGE, dtype=np.int32),
            out_slots=np.zeros(bucket * n, dtype=np.int64),
        )
        if fb is None:
            return padding
        host, rows = fb.host, fb.num_rows
        table = np.full((bucket, max(host.page_table.shape[1], padding.page_table.shape[1])), SINK_PAGE, dtype=np.int32)
        table[:rows, : host.page_table.shape[1]] = host.page_table
        return HostBatch(
            positions=np.concatenate((host.positions, padding.positions[rows * n :])),
            q_starts=padding.q_starts,
            seq_lens=np.concatenate((host.seq_lens, padding.seq_lens[rows:])),
            prefix_lens=np.concatenate((host.prefix_lens, padding.prefix_lens[rows:])),
            page_table=table,
            out_slots=np.concatenate((host.out_slots, padding.out_slots[rows * n :])),
        )


def _copy(to: list[torch.Tensor], of: list[torch.Tensor]) -> None:
    """Copy tensors of one type in one launch: a decode step is short beside the launches of single copies."""
    torch._foreach_copy_(to, of)  # pyright: ignore[reportPrivateImportUsage] - torch has no public name for it
