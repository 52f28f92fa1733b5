"""From the rows of a plan to one ForwardBatch; pure. Knows no model, no KV and no sampling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.scheduler.plan import RowPlan

SINK_PAGE = 0
"""Fills the unused entries of a page table; whatever is written there is never read."""


def concat_input_ids(rows: Sequence[RowPlan]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The new tokens of all rows one after the other, int64 `[T]`, and how many each row has, int64 `[R]`."""
    extend_lens = np.fromiter((len(row.input_ids) for row in rows), np.int64, len(rows))
    total = int(extend_lens.sum())
    return np.fromiter(chain.from_iterable(row.input_ids for row in rows), np.int64, total), extend_lens


def find_rows_outside(
    input_ids: NDArray[np.int64], extend_lens: NDArray[np.int64], vocab_size: int
) -> NDArray[np.bool_]:
    """For each row, bool `[R]`: it has a token id that is not in `0 ... vocab_size - 1`."""
    bad = (input_ids < 0) | (input_ids >= vocab_size)
    if not bad.any():
        return np.zeros(len(extend_lens), dtype=bool)
    return np.bincount(np.repeat(np.arange(len(extend_lens)), extend_lens)[bad], minlength=len(extend_lens)) > 0


def build_page_table(rows: Sequence[RowPlan], page_size: int) -> NDArray[np.int32]:
    """The pages of each row, int32 `[R, max_pages]`, filled up with the sink page.

    Only pages that hold a token of the row after this step are taken; capacity beyond is left out.
    """
    counts = [-(-row.seq_len // page_size) for row in rows]
    table = np.full((len(rows), max(counts, default=0)), SINK_PAGE, dtype=np.int32)
    for i, (row, count) in enumerate(zip(rows, counts, strict=True)):
        assert len(row.pages) >= count, (
            f"row {row.rid}: {row.seq_len} tokens need {count} pages of {page_size}, the plan has {len(row.pages)}"
        )
        table[i, :count] = row.pages[:count]
    return table


def build_forward_batch(rows: Sequence[RowPlan], page_size: int, device: str = "cpu") -> ForwardBatch:
    """One varlen batch of all rows, in the plan's order; `rows` is not empty and every row has a new token."""
    input_ids, extend_lens = concat_input_ids(rows)
    return forward_batch_of_ids(rows, input_ids, extend_lens, page_size, device)


def forward_batch_of_ids(
    rows: Sequence[RowPlan],
    input_ids: NDArray[np.int64],
    extend_lens: NDArray[np.int64],
    page_size: int,
    device: str = "cpu",
) -> ForwardBatch:
    """`build_forward_batch` where the result of `concat_input_ids` is there already (and may have been mended)."""
    prefix_lens = np.fromiter((row.prefix_len for row in rows), np.int64, len(rows))
    table = build_page_table(rows, page_size)
    return ForwardBatch.build(input_ids, extend_lens, prefix_lens, table, page_size, device)
