"""The order of eviction."""

from __future__ import annotations

from sglang_lite.runtime.memory.eviction import EvictionQueue
from sglang_lite.runtime.memory.tree_node import NO_PAGES, Lease, TreeNode


def leaf(last_use: int, *leases: Lease) -> TreeNode:
    return TreeNode(b"", NO_PAGES, None, last_use, leases=set(leases))


def drain(queue: EvictionQueue) -> list[TreeNode]:
    order = []
    while queue.num_leaves:
        order.append(queue.first())
        queue.drop(order[-1])
    return order


def test_unleased_leaves_go_first_then_the_farthest_next_use() -> None:
    soon, late = Lease("soon", 1), Lease("late", 50)
    order = [leaf(7), leaf(9), leaf(1, late), leaf(2, late), leaf(0, soon), leaf(8, late, soon)]
    queue = EvictionQueue()
    for node in (order[i] for i in (5, 2, 0, 4, 3, 1)):
        queue.push(node)
    assert drain(queue) == order


def test_a_push_replaces_the_older_entry_whichever_way_the_priority_moved() -> None:
    queue, first, second = EvictionQueue(), leaf(1), leaf(2)
    queue.push(first)
    queue.push(second)
    first.last_use = 3
    queue.push(first)
    assert drain(queue) == [second, first]


def test_a_dropped_leaf_is_not_offered() -> None:
    queue, first, second = EvictionQueue(), leaf(1), leaf(2)
    queue.push(first)
    queue.push(second)
    queue.drop(first)
    queue.drop(first)
    assert queue.num_leaves == 1
    assert queue.first() is second


def test_stale_entries_do_not_pile_up() -> None:
    """A hot leaf is locked and unlocked without end while nothing is evicted."""
    queue, node = EvictionQueue(), leaf(1)
    for _ in range(10_000):
        queue.push(node)
        queue.drop(node)
    queue.push(node)
    assert queue.num_entries < 200
    assert drain(queue) == [node]
