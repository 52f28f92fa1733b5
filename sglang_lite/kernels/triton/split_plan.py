"""Which program reads which keys for which queries in split attention: plain numpy on the host. Knows no tensor and no layer.

The keys of a query are cut at absolute positions that depend on its own length alone, so that what runs beside it, and
who reads a piece together with whom, changes no bit of its result. Queries that read the same memory for a whole piece
(rows which begin with the same pages, drafts of one row) read it once, as many as fit into one tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

SPLIT = 256
"""Keys of a piece, as long as a query has no more than `MAX_SPLITS` of them; longer ones have pieces of twice that, and so on."""

MAX_SPLITS = 32
"""Pieces of a query, at most."""

TILE = 16
"""Query heads of one tile: the fewest rows of a matrix product on the tensor cores."""

ITEM_FIELDS = 6
"""Of a work item: first query, queries, row of the page table, first key, end of the keys, index of the piece."""


@dataclass(frozen=True)
class SplitPlan:
    """The work of split attention over Q queries of one token each.

    Attributes:
        tokens: int32 [Q], the packed token that each query is.
        limits: int32 [Q], keys that each query sees: those at positions below.
        pieces: int32 [Q], keys of a piece of each query.
        items: int32 [n, ITEM_FIELDS]; together they cover every piece of every query once.
        splits: the most pieces of a query.

    """

    tokens: Ints
    limits: Ints
    pieces: Ints
    items: Ints
    splits: int


def heads_per_tile(group: int) -> int:
    """Query heads of one kv head that one tile takes, of `group`."""
    return min(group, TILE)


def queries_per_tile(group: int) -> int:
    """Queries whose heads of one kv head fit into one tile."""
    return TILE // heads_per_tile(group)


def piece_sizes(limits: Ints) -> Ints:
    """Keys of a piece for queries that see `limits` keys; `SPLIT` times a power of two."""
    needed = -(-np.maximum(limits, 1).astype(np.int64) // (SPLIT * MAX_SPLITS))
    return (SPLIT << np.ceil(np.log2(needed)).astype(np.int64)).astype(np.int32)


def most_splits(num_keys: int) -> int:
    """The most pieces of any query that sees up to `num_keys` keys."""
    return min(MAX_SPLITS, -(-max(num_keys, 1) // SPLIT))


def plan_split(
    tokens: Ints, rows: Ints, limits: Ints, page_table: Ints, page_size: int, group: int, *, share: bool = True
) -> SplitPlan:
    """Cut the keys of all queries into pieces, those which several read joined.

    Args:
        tokens: int32 [Q], the packed token of each query.
        rows: int32 [Q], its row of the page table.
        limits: int32 [Q], keys it sees, at least 1.
        page_table: int32 [R, max_pages], page ids; equal ids are equal memory.
        page_size: tokens in a page.
        group: query heads per kv head.
        share: whether pieces that several read are joined; else each query has its own items.

    """
    sizes = piece_sizes(limits)
    most = queries_per_tile(group)
    linked = np.zeros(max(len(rows) - 1, 0), np.int64)
    if share and most > 1 and len(rows) > 1 and len(np.unique(page_table[rows, 0])) < len(rows):
        page_table = page_table[:, : -(-int(limits.max()) // page_size)]
        order = _neighbours(rows, limits, sizes, page_table)
        tokens, rows, limits, sizes = tokens[order], rows[order], limits[order], sizes[order]
        linked = _linked(rows, limits, sizes, page_table, page_size)
    counts = -(-limits // sizes)
    items = _items(rows, limits, sizes, counts, linked, most)
    return SplitPlan(tokens, limits, sizes, items, int(counts.max(initial=1)))


def _neighbours(rows: Ints, limits: Ints, sizes: Ints, page_table: Ints) -> NDArray[np.intp]:
    """An order in which queries that share pages and have pieces of one size lie together, each row's by their limits."""
    used, index = np.unique(rows, return_inverse=True)
    heads = [page_table[row].tobytes() for row in used.tolist()]
    rank = np.empty(len(used), np.int64)
    rank[sorted(range(len(used)), key=heads.__getitem__)] = np.arange(len(used))
    return np.lexsort((limits, rank[index], sizes))


def _linked(rows: Ints, limits: Ints, sizes: Ints, page_table: Ints, page_size: int) -> NDArray[np.int64]:
    """For each query but the last: how many first pieces it may read together with the next one."""
    one, two = rows[:-1], rows[1:]
    equal = page_table[one] == page_table[two]
    common = np.logical_and.accumulate(equal, axis=1).sum(axis=1) * page_size
    fewest = np.minimum(limits[:-1], limits[1:]).astype(np.int64)
    whole = np.minimum(common, fewest) // sizes[1:]
    # Tokens of one row share a piece that is not whole too: each hides what comes after itself.
    pieces = np.where(one == two, -(-fewest // sizes[1:]), whole)
    return np.where(sizes[:-1] == sizes[1:], pieces, 0)


def _items(rows: Ints, limits: Ints, sizes: Ints, counts: Ints, linked: NDArray[np.int64], most: int) -> Ints:
    """Runs of linked queries, piece by piece, cut after every `most`; the largest items first."""
    at = np.arange(len(rows))[:, None]
    piece = np.arange(int(counts.max(initial=1)))
    begins = np.ones((len(rows), len(piece)), bool)
    begins[1:] = piece >= linked[:, None]
    head = begins | ((at - np.maximum.accumulate(np.where(begins, at, 0), axis=0)) % most == 0)
    following = np.full(head.shape, len(rows), np.int64)
    following[:-1] = np.minimum.accumulate(np.where(head, at, len(rows))[::-1], axis=0)[::-1][1:]
    query, index = np.nonzero(head & (piece < counts[:, None]))
    end_query = following[query, index]
    start = index * sizes[query]
    end = np.minimum(start + sizes[query], limits[end_query - 1])
    items = np.stack((query, end_query - query, rows[query], start, end, index), axis=1).astype(np.int32)
    return np.ascontiguousarray(items[np.argsort(start - end, kind="stable")])
