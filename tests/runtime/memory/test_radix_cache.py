"""The tree alone: pages are numbers here, freed ones are what the tree returns."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.runtime.memory.radix_cache import Insertion, RadixCache, RadixStatistics
from sglang_lite.runtime.memory.tree_node import LockHandle, token_key


def key(ids: list[int]) -> bytes:
    return token_key(ids, 0, len(ids))


def lock(tree: RadixCache, ids: list[int], namespace: str = "") -> LockHandle:
    return tree.lock(namespace, tree.match(namespace, key(ids)))


def put(tree: RadixCache, ids: list[int], pages: list[int], namespace: str = "", lease: str | None = None) -> Insertion:
    """Insert whole pages and the head of one more from the root, as a row does that starts cold."""
    handle = tree.lock(namespace, tree.match(namespace, b""))
    array = np.array(pages, dtype=np.int32)
    whole = len(ids) // tree.page_size
    owner = tree.open_lease(lease, 0) if lease else None
    done = tree.insert(handle.node, key(ids[: whole * tree.page_size]), array[:whole], owner)
    if len(ids) % tree.page_size:
        done = tree.insert_tail(done.node, key(ids[whole * tree.page_size :]), array[whole:], owner)
    tree.unlock(handle)
    return done


def matched(tree: RadixCache, ids: list[int], namespace: str = "") -> int:
    match = tree.match(namespace, key(ids))
    return match.num_pages * tree.page_size + match.source_tokens


def tokens_in(tree: RadixCache) -> int:
    return sum(len(node.pages) for node in tree.nodes())


def test_a_locked_node_survives_eviction_though_it_was_split() -> None:
    """Every count is right after each step, and a lock protects its own node, not only those above."""
    tree = RadixCache(1)
    put(tree, [1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13, 14, 15, 16, 17, 18])
    put(tree, [1, 2, 3, 4, 9, 10], [21, 22, 23, 24, 25, 26])
    assert tokens_in(tree) == tree.evictable_pages == 10
    handle = lock(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    assert (tree.evictable_pages, tree.protected_pages) == (2, 8)
    assert sorted(tree.evict(2).tolist()) == [25, 26]
    assert matched(tree, [1, 2, 3, 4, 5, 6, 7, 8]) == 8
    assert [int(p) for node in tree.path(handle.node) for p in node.pages] == [11, 12, 13, 14, 15, 16, 17, 18]
    with pytest.raises(AssertionError, match="0 are evictable"):
        tree.evict(1)
    tree.unlock(handle)
    assert (tree.evictable_pages, tree.protected_pages) == (8, 0)
    assert sorted(tree.evict(8).tolist()) == [11, 12, 13, 14, 15, 16, 17, 18]
    assert tokens_in(tree) == 0
    assert not tree.roots


def test_a_split_keeps_locks_and_leases_on_both_parts() -> None:
    tree = RadixCache(2)
    put(tree, [1, 2, 3, 4, 5, 6], [1, 2, 3], lease="program")
    long = lock(tree, [1, 2, 3, 4, 5, 6])
    short = lock(tree, [1, 2, 3, 9])
    lower, upper = long.node, short.node
    assert lower.parent is upper
    assert (upper.lock_ref, lower.lock_ref) == (2, 1)
    assert [lease.name for lease in upper.leases] == [lease.name for lease in lower.leases] == ["program"]
    tree.unlock(long)
    assert (tree.evictable_pages, tree.protected_pages) == (2, 1)
    assert sorted(tree.evict(2).tolist()) == [2, 3]
    tree.unlock(short)
    assert tree.evict(1).tolist() == [1]
    assert not tree.leases["program"].nodes


def test_a_lock_is_released_once() -> None:
    tree = RadixCache(1)
    put(tree, [1], [1])
    handle = lock(tree, [1])
    tree.unlock(handle)
    with pytest.raises(AssertionError, match="twice"):
        tree.unlock(handle)


def test_insert_hands_back_what_the_tree_had() -> None:
    tree = RadixCache(2)
    put(tree, [1, 2, 3, 4], [1, 2])
    done = put(tree, [1, 2, 3, 4, 5, 6], [7, 8, 9])
    assert done.present.tolist() == [1, 2]
    assert done.node.pages.tolist() == [9]
    done = put(tree, [1, 2, 8, 8], [4, 5])
    assert done.present.tolist() == [1]
    assert tokens_in(tree) == 4


@pytest.mark.parametrize(
    ("ids", "length"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 8),
        ([1, 2, 3, 4, 5, 6, 7], 7),
        ([1, 2, 3, 4, 5, 9], 5),
        ([1, 2, 3, 9], 3),
        ([1, 2, 3, 4, 5, 6, 7, 8, 20, 21], 10),
        ([1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23, 24], 10),
        ([1, 2, 3, 4, 5, 6, 7, 8, 20, 30], 10),
        ([1, 2, 3, 4, 5, 6, 7, 8, 20, 99], 9),
        ([9], 0),
        ([], 0),
    ],
)
def test_matching_is_exact_to_the_token(ids: list[int], length: int) -> None:
    """Two tails below one node: the better of them counts."""
    tree = RadixCache(4)
    put(tree, [1, 2, 3, 4, 5, 6, 7, 8, 20, 21], [1, 2, 3])
    put(tree, [1, 2, 3, 4, 5, 6, 7, 8, 20, 30, 31], [4, 5, 6])
    assert matched(tree, ids) == length


def test_the_best_of_many_children_is_found_among_its_sorted_neighbours() -> None:
    tree = RadixCache(4)
    for i in range(300):
        put(tree, [5, 5, i, i, i], [2 * i + 1, 2 * i + 2])
    match = tree.match("", key([5, 5, 123, 7]))
    assert (match.source_tokens, match.source_page) == (3, 247)
    assert tree.match("", key([5, 5, 1000, 7])).source_tokens == 2
    assert tree.match("", key([5])).source_tokens == 1


def test_a_longer_tail_or_a_whole_page_replaces_the_tail_it_continues() -> None:
    tree = RadixCache(4)
    put(tree, [1], [1], lease="program")
    assert put(tree, [1, 2, 3], [2]).replaced.tolist() == [1]
    assert put(tree, [1, 2], [3]).present.tolist() == [2]
    assert put(tree, [1, 7], [4]).replaced.tolist() == []
    assert put(tree, [1, 2, 3, 4], [5]).replaced.tolist() == [2]
    assert put(tree, [1, 2, 3], [6]).present.tolist() == [5]
    assert sorted(int(p) for node in tree.nodes() for p in node.pages) == [4, 5]
    names = {int(node.pages[0]): [lease.name for lease in node.leases] for node in tree.nodes() if len(node.pages)}
    assert names == {4: [], 5: ["program"]}


def test_namespaces_never_mix() -> None:
    tree = RadixCache(2)
    put(tree, [1, 2, 3], [1, 2], namespace="a")
    assert matched(tree, [1, 2, 3], "a") == 3
    assert matched(tree, [1, 2, 3], "b") == 0
    put(tree, [1, 2, 3], [3, 4], namespace="b")
    assert tree.match("b", key([1, 2, 3])).source_page == 4
    assert sorted(tree.evict(4).tolist()) == [1, 2, 3, 4]
    assert not tree.roots


def test_eviction_trims_a_leaf_from_its_end_by_exactly_what_is_asked() -> None:
    tree = RadixCache(2)
    put(tree, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4])
    assert tree.evict(1).tolist() == [4]
    assert matched(tree, [1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert sorted(tree.evict(2).tolist()) == [2, 3]
    assert matched(tree, [1, 2, 3, 4]) == 2
    assert tree.evict(0).tolist() == []


def test_a_parent_is_evicted_after_its_last_child() -> None:
    tree = RadixCache(1)
    put(tree, [1, 2, 3], [1, 2, 3])
    put(tree, [1, 2, 4], [1, 2, 4])
    assert tree.evict(1).tolist() == [3]
    assert tree.evict(1).tolist() == [4]
    assert sorted(tree.evict(2).tolist()) == [1, 2]


def test_matching_alone_does_not_change_the_order_of_eviction() -> None:
    tree = RadixCache(1)
    put(tree, [1], [1])
    put(tree, [2], [2])
    tree.match("", key([1]))
    assert tree.evict(1).tolist() == [1]


def test_use_by_a_lock_or_as_a_source_makes_a_leaf_recent() -> None:
    tree = RadixCache(2)
    for first in (1, 2, 3):
        put(tree, [first, first], [first])
    tree.unlock(lock(tree, [1, 1]))
    tree.unlock(lock(tree, [2, 9]))
    assert [int(tree.evict(1)[0]) for _ in range(3)] == [3, 1, 2]


def test_a_lock_moves_down_its_path_only() -> None:
    tree = RadixCache(1)
    put(tree, [1, 2], [1, 2])
    put(tree, [3], [3])
    handle = lock(tree, [1])
    below = tree.match("", key([1, 2])).node
    assert below is not None
    tree.extend_lock(handle, below)
    assert tree.protected_pages == 2
    aside = tree.match("", key([3])).node
    assert aside is not None
    with pytest.raises(AssertionError, match="down its own path"):
        tree.extend_lock(handle, aside)


def test_a_leased_leaf_outlives_an_unleased_one_until_the_lease_ends() -> None:
    tree = RadixCache(1)
    put(tree, [1], [1], lease="program")
    put(tree, [2], [2])
    put(tree, [3], [3])
    assert tree.evict(1).tolist() == [2]
    tree.end_lease("program")
    tree.end_lease("program")
    assert tree.evict(1).tolist() == [1]


def test_the_farthest_next_use_goes_first_and_may_change() -> None:
    tree = RadixCache(1)
    for name, page in (("a", 1), ("b", 2), ("c", 3)):
        put(tree, [page], [page], lease=name)
    tree.set_next_use("a", 5)
    tree.set_next_use("b", 9)
    tree.set_next_use("c", 7)
    tree.set_next_use("c", 1)
    tree.set_next_use("unknown", 1)
    assert [int(tree.evict(1)[0]) for _ in range(3)] == [2, 1, 3]
    assert not any(lease.nodes for lease in tree.leases.values())


def test_statistics_count_leaves_leases_and_what_was_evicted() -> None:
    tree = RadixCache(1)
    put(tree, [1, 2, 3, 4], [1, 2, 3, 4], lease="a")
    put(tree, [5, 6], [5, 6], "other")
    tree.evict(1)
    assert tree.statistics() == RadixStatistics(
        namespaces=2, leases=1, evictable_pages=5, protected_pages=0, evictable_leaves=2, evicted_pages=1
    )
