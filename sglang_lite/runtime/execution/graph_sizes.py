"""Which batch sizes get a graph of their own; pure arithmetic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

DEFAULT_MAX_ROWS = 256
"""Largest bucket unless a setting says otherwise: above it a decode step is long enough to hide its launches."""

_DENSE = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16))


def graph_sizes(max_rows: int, max_bucket: int | None = None, buckets: Sequence[int] | None = None) -> tuple[int, ...]:
    """Rows of the decode graphs, ascending.

    Dense where a step is short: 1, 2, 4, 8, 12, then steps of 8 to 256, of 16 to 512, of 32 beyond. The bound itself is
    always a bucket, so that no batch below it goes without a graph.

    Args:
        max_rows: most rows that can decode at once; no bucket is larger.
        max_bucket: the bound asked for (`cuda_graph_max_bs`); None: `DEFAULT_MAX_ROWS`, or the largest of `buckets`.
        buckets: the sizes asked for (`cuda_graph_bs`), in any order; None: the default ones.

    """
    assert max_rows >= 1, f"{max_rows} rows, expected at least 1"
    if buckets is not None:
        bound = min(max_rows, max(buckets) if max_bucket is None else max_bucket)
        # a size beyond the bound serves the batches up to the bound, so the bound takes its place
        return tuple(sorted({min(size, bound) for size in buckets}))
    bound = min(max_rows, DEFAULT_MAX_ROWS if max_bucket is None else max_bucket)
    sizes = {size for size in (*_DENSE, *range(512, bound + 1, 32)) if size < bound}
    return tuple(sorted(sizes | {bound}))


def bucket_of(rows: int, sizes: Sequence[int]) -> int | None:
    """The smallest of the ascending `sizes` that holds `rows`; None: none does."""
    at = bisect_left(sizes, rows)
    return sizes[at] if at < len(sizes) else None
