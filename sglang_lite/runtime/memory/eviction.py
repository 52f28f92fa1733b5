"""The order in which lock-free leaves are evicted; knows nothing of the tree's shape or of pages."""

from __future__ import annotations

import heapq

from sglang_lite.runtime.memory.tree_node import TreeNode

_SLACK = 64


class EvictionQueue:
    """A heap of lock-free leaves with lazy invalidation.

    Order: unleased leaves by least recent use, then leased ones, farthest next use first (a leaf of several leases
    counts with the soonest), least recent use among equals. A node's valid entry is the one whose number is
    `node.stamp`; pushing again replaces it, and stale entries fall out when they come up or when they outnumber the
    valid ones, so every operation is O(log leaves) on average.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, TreeNode]] = []
        self._last_stamp = 0
        self._num_leaves = 0

    @property
    def num_leaves(self) -> int:
        """Nodes with a valid entry."""
        return self._num_leaves

    @property
    def num_entries(self) -> int:
        """Entries in the heap, stale ones included; no more than a constant beyond twice the leaves."""
        return len(self._heap)

    def push(self, node: TreeNode) -> None:
        """`node` is a lock-free leaf, or its priority has changed."""
        if not node.stamp:
            self._num_leaves += 1
        self._last_stamp += 1
        node.stamp = self._last_stamp
        leased, next_use = (1, -min(lease.next_use for lease in node.leases)) if node.leases else (0, 0)
        heapq.heappush(self._heap, (leased, next_use, node.last_use, node.stamp, node))
        if len(self._heap) > 2 * self._num_leaves + _SLACK:
            self._heap = [entry for entry in self._heap if entry[4].stamp == entry[3]]
            heapq.heapify(self._heap)

    def drop(self, node: TreeNode) -> None:
        """`node` is no longer a lock-free leaf; nothing happens if it was none."""
        if node.stamp:
            self._num_leaves -= 1
            node.stamp = 0

    def first(self) -> TreeNode:
        """The leaf to evict next; it stays in the queue. There must be one."""
        while self._heap[0][4].stamp != self._heap[0][3]:
            heapq.heappop(self._heap)
        return self._heap[0][4]
