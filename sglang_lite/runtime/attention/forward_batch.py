"""The device tensors of one forward pass over rows of different lengths; read-only. Knows nothing of requests or of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class HostBatch:
    """The numpy side of a `ForwardBatch`, for kernels and planners that run on the CPU. Fields as there."""

    positions: np.ndarray
    q_starts: np.ndarray
    seq_lens: np.ndarray
    prefix_lens: np.ndarray
    page_table: np.ndarray
    out_slots: np.ndarray


@dataclass(frozen=True)
class ForwardBatch:
    """One step: T new tokens in R rows, packed row after row; every row has at least one new token.

    The KV of all T tokens is written, layer by layer, before any row of that layer attends, so a row may read pages
    that an earlier row of the same batch writes.

    Attributes:
        input_ids: int64 [T], the new tokens.
        positions: int64 [T], absolute position of each in its sequence.
        q_starts: int32 [R + 1], row r owns tokens `q_starts[r]:q_starts[r + 1]`.
        seq_lens: int32 [R], tokens in the row's sequence after this step (prefix + new).
        prefix_lens: int32 [R], tokens whose KV is there before this step or written by an earlier row of it.
        page_table: int32 [R, max_pages], pages of each row in order; unused entries are 0, the sink page.
        out_slots: int64 [T], where each new token's KV goes: `page * page_size + offset`.
        page_size: tokens in a page.
        host: the same as numpy arrays.

    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    q_starts: torch.Tensor
    seq_lens: torch.Tensor
    prefix_lens: torch.Tensor
    page_table: torch.Tensor
    out_slots: torch.Tensor
    page_size: int
    host: HostBatch

    @property
    def num_tokens(self) -> int:
        """T, the new tokens of the step."""
        return len(self.host.positions)

    @property
    def num_rows(self) -> int:
        """R, the rows of the step."""
        return len(self.host.seq_lens)

    @staticmethod
    def build(
        input_ids: np.ndarray,
        extend_lens: np.ndarray,
        prefix_lens: np.ndarray,
        page_table: np.ndarray,
        page_size: int,
        device: str = "cpu",
    ) -> ForwardBatch:
        """Derive positions, row starts and slots from the rows' lengths and pages.

        Args:
            input_ids: integers [T].
            extend_lens: integers [R], new tokens of each row, each at least 1; they sum to T.
            prefix_lens: integers [R].
            page_table: integers [R, max_pages]; covers `prefix + extend` tokens of every row.
            page_size: tokens in a page.
            device: where the tensors live.

        The arrays are copied or converted as needed; on the CPU the tensors share memory with `host`.

        """
        extend = np.asarray(extend_lens, dtype=np.int64)
        prefix = np.asarray(prefix_lens, dtype=np.int64)
        table = np.ascontiguousarray(page_table, dtype=np.int32)
        ids = np.ascontiguousarray(input_ids, dtype=np.int64)
        assert table.ndim == 2 and len(table) == len(extend) == len(prefix), (
            f"rows differ: {len(extend)} extend lengths, {len(prefix)} prefix lengths, page table {table.shape}"
        )
        assert (extend >= 1).all(), f"every row needs a new token, extend lengths are {extend.tolist()}"
        assert int(extend.sum()) == len(ids), f"extend lengths sum to {int(extend.sum())}, there are {len(ids)} tokens"
        starts = np.zeros(len(extend) + 1, dtype=np.int64)
        np.cumsum(extend, out=starts[1:])
        rows = np.repeat(np.arange(len(extend)), extend)
        positions = np.arange(len(ids)) - starts[rows] + prefix[rows]
        capacity = table.shape[1] * page_size
        assert not len(ids) or int(positions.max()) < capacity, (
            f"position {int(positions.max())} lies beyond the page table ({table.shape[1]} pages of {page_size})"
        )
        slots = table[rows, positions // page_size].astype(np.int64) * page_size + positions % page_size
        host = HostBatch(
            positions=positions,
            q_starts=starts.astype(np.int32),
            seq_lens=(prefix + extend).astype(np.int32),
            prefix_lens=prefix.astype(np.int32),
            page_table=table,
            out_slots=slots,
        )

        def put(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        return ForwardBatch(
            input_ids=put(ids),
            positions=put(host.positions),
            q_starts=put(host.q_starts),
            seq_lens=put(host.seq_lens),
            prefix_lens=put(host.prefix_lens),
            page_table=put(host.page_table),
            out_slots=put(host.out_slots),
            page_size=page_size,
            host=host,
        )
