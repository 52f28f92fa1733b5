"""What FlashInfer's `plan` functions take, computed on the CPU from a batch; numpy only. Knows no FlashInfer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.attention.forward_batch import HostBatch

Int32 = NDArray[np.int32]

MAX_LEVELS = 3
"""Levels of a cascade, the rows' own one included; each costs a launch and a merge."""

MIN_SHARED_TOKENS = 64
"""What neighbours must have in common to be a group: below that a launch of its own costs more than it saves."""

MIN_SAVED_SHARE = 0.25
"""Of all pages that a batch reads, the share that a cascade must save."""


@dataclass(frozen=True)
class PagedPlan:
    """Rows of queries and the pages that each reads.

    Attributes:
        qo_indptr: int32 [n + 1], row i has the queries `qo_indptr[i]:qo_indptr[i + 1]`.
        kv_indptr: int32 [n + 1], row i has the pages `indices[kv_indptr[i]:kv_indptr[i + 1]]`.
        indices: int32 [kv_indptr[-1]], pages in the order of their tokens.
        last_page_len: int32 [n], tokens in a row's last page, 1 to `page_size`; 0 for a row without pages.

    """

    qo_indptr: Int32
    kv_indptr: Int32
    indices: Int32
    last_page_len: Int32

    @property
    def num_rows(self) -> int:
        """The rows, n."""
        return len(self.last_page_len)


@dataclass(frozen=True)
class CascadePlan:
    """Levels from the most shared to the rows' own.

    In every level but the last a row stands for a group of neighbours in the batch, whose queries all see all of the
    level's keys; what a group shares with nobody has no pages there. The last level has the batch's rows with the rest of
    their pages, the new tokens among them, and is causal.

    Attributes:
        levels: two or more.
        saved_pages: page reads that the sharing saves.

    """

    levels: tuple[PagedPlan, ...]
    saved_pages: int


@dataclass(frozen=True)
class RaggedPlan:
    """Rows that begin at position 0 and are computed whole: keys and values are the step's own, read where they are made.

    `indptr`: int32 [R + 1], of queries and of keys alike.
    """

    indptr: Int32


def paged_plan(host: HostBatch, page_size: int) -> PagedPlan:
    """Each row of the batch with all of its pages."""
    return _rows_from(host, page_size, np.zeros(len(host.seq_lens), dtype=np.int64))


def ragged_plan(host: HostBatch) -> RaggedPlan | None:
    """The batch without a look at the pool; None: a row has a prefix, or reads what another row writes."""
    return None if host.prefix_lens.any() else RaggedPlan(host.q_starts)


def is_decode(host: HostBatch) -> bool:
    """Whether every row has exactly one new token."""
    return len(host.positions) == len(host.seq_lens)


def cascade_plan(
    host: HostBatch,
    page_size: int,
    *,
    max_levels: int = MAX_LEVELS,
    min_shared_tokens: int = MIN_SHARED_TOKENS,
    min_saved_share: float = MIN_SAVED_SHARE,
) -> CascadePlan | None:
    """Find what neighbouring rows share; None: not enough for a cascade to pay.

    Only whole pages of a row's prefix count, so that every query of a group sees all of what its group shares.

    Args:
        host: the batch. Rows that share are found where they stand next to each other.
        page_size: tokens in a page.
        max_levels: the last one included.
        min_shared_tokens: of a group, in a level.
        min_saved_share: of all page reads of the batch.

    """
    rows = len(host.seq_lens)
    pages = -(-host.seq_lens.astype(np.int64) // page_size)
    common = _common_pages(host, page_size)
    least = -(-min_shared_tokens // page_size)
    shared = np.zeros(rows, dtype=np.int64)
    levels: list[PagedPlan] = []
    saved = 0
    while len(levels) < max_levels - 1:
        starts = _group_starts(common, shared, least)
        depth = _group_depth(common, shared, starts)
        if not depth.any():
            break
        sizes = np.diff(np.append(starts, rows))
        levels.append(_shared_level(host, page_size, starts, shared, depth))
        saved += int(((sizes - 1) * depth).sum())
        shared = shared + np.repeat(depth, sizes)
    if not levels or saved < min_saved_share * int(pages.sum()):
        return None
    return CascadePlan((*levels, _rows_from(host, page_size, shared)), saved)


def _common_pages(host: HostBatch, page_size: int) -> NDArray[np.int64]:
    """Of each row but the last, int64 [R - 1]: how many whole prefix pages it has in common with the next row."""
    table = host.page_table
    whole = host.prefix_lens.astype(np.int64) // page_size
    if not (table[1:, 0] == table[:-1, 0]).any():  # the most usual case is the cheapest
        return np.zeros(len(whole) - 1, dtype=np.int64)
    different = table[1:] != table[:-1]
    equal = np.where(different.any(axis=1), different.argmax(axis=1), table.shape[1])
    return np.minimum(equal, np.minimum(whole[1:], whole[:-1]))


def _group_starts(common: NDArray[np.int64], shared: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """First rows of the groups; a group goes on as long as neighbours share `least` pages beyond what they have."""
    goes_on = common >= shared[:-1] + least
    return np.flatnonzero(np.append(True, ~goes_on)).astype(np.int64)


def _group_depth(common: NDArray[np.int64], shared: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pages that all rows of each group share beyond those of the levels before; 0 for a group of one row."""
    ends = np.append(starts[1:], len(shared))
    depth = np.zeros(len(starts), dtype=np.int64)
    for i in np.flatnonzero(ends - starts > 1):
        depth[i] = common[starts[i] : ends[i] - 1].min() - shared[starts[i]]
    return depth


def _shared_level(
    host: HostBatch,
    page_size: int,
    starts: NDArray[np.int64],
    shared: NDArray[np.int64],
    depth: NDArray[np.int64],
) -> PagedPlan:
    first = shared[starts]
    ends = np.append(starts[1:], len(host.seq_lens))
    qo_indptr = np.append(host.q_starts[starts], host.q_starts[ends[-1]]).astype(np.int32)
    indices = _gather(host.page_table[starts], first, first + depth)
    return PagedPlan(qo_indptr, _indptr(depth), indices, np.where(depth > 0, page_size, 0).astype(np.int32))


def _rows_from(host: HostBatch, page_size: int, first: NDArray[np.int64]) -> PagedPlan:
    """The batch's rows, each from its page `first` on; a row's last page is always among them."""
    seq_lens = host.seq_lens.astype(np.int64)
    pages = -(-seq_lens // page_size)
    last_page_len = (seq_lens - 1) % page_size + 1
    indices = _gather(host.page_table, first, pages)
    return PagedPlan(host.q_starts, _indptr(pages - first), indices, last_page_len.astype(np.int32))


def _gather(table: Int32, first: NDArray[np.int64], end: NDArray[np.int64]) -> Int32:
    """Entries `first[i]:end[i]` of each row, one row after the other."""
    column = np.arange(table.shape[1])
    return table[(column >= first[:, None]) & (column < end[:, None])]


def _indptr(counts: NDArray[np.int64]) -> Int32:
    indptr = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=indptr[1:])
    return indptr
