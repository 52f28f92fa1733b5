"""The data of the radix tree: token keys as bytes, nodes, leases and lock handles; no operation on the tree."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

TokenIds: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids as any sequence of ints; an integer array converts fastest."""

TOKEN_BYTES = 4
NO_PAGES: NDArray[np.int32] = np.zeros(0, dtype=np.int32)


def token_key(ids: TokenIds, start: int, stop: int) -> bytes:
    """Tokens `ids[start:stop]` as big-endian int32.

    Bytes compare, slice and hash at memory speed, and the order of the bytes is the order of the tokens, so that among
    sorted keys the one with the longest common prefix is a neighbour.
    """
    part = ids[start:stop]
    if isinstance(part, np.ndarray):
        return part.astype(">i4").tobytes()
    return struct.pack(f">{len(part)}i", *part)


def common_tokens(a: bytes, b: bytes) -> int:
    """How many leading tokens two keys have in common."""
    size = min(len(a), len(b))
    difference = int.from_bytes(a[:size], "big") ^ int.from_bytes(b[:size], "big")
    return (size * 8 - difference.bit_length()) // (TOKEN_BYTES * 8)


@dataclass(eq=False, slots=True)
class Lease:
    """A program's wish to find its prefixes again: a priority at eviction, never a lock.

    `next_use`: when the program expects to need them; smaller is sooner. `nodes`: every node the wish covers.
    """

    name: str
    next_use: int
    nodes: set[TreeNode] = field(default_factory=set["TreeNode"])


@dataclass(eq=False, slots=True)
class TreeNode:
    """A run of tokens below its parent and the pages that hold their KV.

    A **whole** node has full pages: `len(key) == len(pages) * page_bytes`, any number of pages. A **tail** node has one
    page of which only the first tokens are known; it is always a leaf, is matched by copying, and is never locked.
    A root has no key, no pages, no parent, but the name of its namespace.
    """

    key: bytes
    pages: NDArray[np.int32]
    parent: TreeNode | None
    last_use: int
    """The cache's use counter when this node was last matched, locked, unlocked or inserted."""
    is_tail: bool = False
    lock_ref: int = 0
    """Live locks on this node or below it; a parent's is never less than a child's."""
    stamp: int = 0
    """Number of this node's valid entry in the eviction queue; 0: not a lock-free leaf."""
    leases: set[Lease] = field(default_factory=set[Lease])
    children: dict[bytes, TreeNode] = field(default_factory=dict[bytes, "TreeNode"])
    """By the first page of the child's key (a tail: by its key)."""
    heads: list[bytes] = field(default_factory=list[bytes])
    """The keys of `children`, sorted; empty with one-token pages, where no page matches in part."""
    namespace: str = ""


@dataclass(eq=False, slots=True)
class LockHandle:
    """One lock on the path from the root to `node`; the cache that made it moves and ends it.

    A split puts a new node above, so `node` stays the end of the same token sequence.
    """

    node: TreeNode
    is_released: bool = False
